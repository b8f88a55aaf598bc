"""What TensorRT engines need beside TensorRT: the attention plugin and its kernels."""
