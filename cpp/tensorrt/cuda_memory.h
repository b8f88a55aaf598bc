// CUDA's runtime API with errors as exceptions and what it allocates as values that free themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

#include "trtc/errors.h"

namespace trtc::tensorrt {

// Throws ExecutorError saying what was tried when `status` is no success.
inline void check_cuda(cudaError_t status, const std::string& action) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // a later call shall not report it again
  throw ExecutorError(action + " failed: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

template <cudaError_t (*Free)(void*)>
struct CudaFree {
  void operator()(std::byte* memory) const { (void)Free(memory); }
};
using DeviceMemory = std::unique_ptr<std::byte, CudaFree<cudaFree>>;
using PinnedMemory = std::unique_ptr<std::byte, CudaFree<cudaFreeHost>>;

inline DeviceMemory allocate_device(std::size_t bytes, const std::string& purpose) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "allocating " + std::to_string(bytes) + " bytes on the GPU for " + purpose);
  return DeviceMemory(static_cast<std::byte*>(memory));
}

inline PinnedMemory allocate_pinned(std::size_t bytes, const std::string& purpose) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, bytes),
             "allocating " + std::to_string(bytes) + " page-locked bytes for " + purpose);
  return PinnedMemory(static_cast<std::byte*>(memory));
}

struct StreamDestroy {
  void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<CUstream_st, StreamDestroy>;

struct GraphDestroy {
  void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<CUgraph_st, GraphDestroy>;

struct GraphExecDestroy {
  void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
};
using GraphExec = std::unique_ptr<CUgraphExec_st, GraphExecDestroy>;

}  // namespace trtc::tensorrt
