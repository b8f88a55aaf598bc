#include "tensorrt_engine.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "engine/binding_names.h"
#include "engine/mapped_file.h"
#include "plan_facts.h"
#include "plugins/paged_attention_plugin.h"
#include "trtc/errors.h"

namespace trtc::tensorrt {
namespace {

std::string loaded_version() {
  return std::to_string(getInferLibMajorVersion()) + "." + std::to_string(getInferLibMinorVersion()) + "." +
         std::to_string(getInferLibPatchVersion());
}

// A plan is for one version of TensorRT. The manifest may name a build too, as in 1.7.1.116.
void check_version(const std::string& path, const engine::TensorRtManifest& manifest) {
  const std::string loaded = loaded_version();
  if (manifest.version == loaded || manifest.version.starts_with(loaded + ".")) return;
  throw EngineError(path + " was built with " + manifest.flavour + " " + manifest.version + ", this machine has " +
                    loaded + "; install that version or build the engine again");
}

void check_device(const std::string& path, const engine::TensorRtManifest& manifest, int device) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    throw ExecutorError("this machine has no GPU that CUDA can use (" + std::string(cudaGetErrorString(status)) +
                        "); run the engine where there is one, or build it with target cpu");
  }
  check_cuda(status, "looking for a GPU");
  if (device < 0 || device >= devices) {
    throw ExecutorError("GPU " + std::to_string(device) + " is not one of this machine's " + std::to_string(devices));
  }
  int major = 0, minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for the GPU's SM");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "asking for the GPU's SM");
  const int sm = major * 10 + minor;
  if (sm == manifest.sm) return;
  throw EngineError(path + " was built for SM " + std::to_string(manifest.sm) + ", GPU " + std::to_string(device) +
                    " is of SM " + std::to_string(sm) + "; build with --sm " + std::to_string(sm));
}

// The registry is the process's, and so is the creator.
void register_plugin(Log& log) {
  static plugins::PagedAttentionCreator creator;
  static const bool registered = getPluginRegistry()->registerCreator(creator, plugins::kPluginNamespace);
  log.check(registered, "registering the plugin trtc::PagedAttention");
}

// Older headers have no communicator: their engines have one rank.
template <typename Context>
bool set_communicator(Context& context, void* communicator) {
  if constexpr (requires { context.setCommunicator(communicator); }) {
    return context.setCommunicator(communicator);
  } else {
    throw ExecutorError("this build's TensorRT runs no engine of more than one rank; build trtc with a newer one");
  }
}

nvinfer1::Dims dims_of(std::initializer_list<std::int64_t> sizes) {
  nvinfer1::Dims dims{};
  for (const std::int64_t size : sizes) dims.d[dims.nbDims++] = size;
  return dims;
}

}  // namespace

TensorRtEngine::TensorRtEngine(const std::string& plan_path, const engine::TensorRtManifest& manifest,
                               const GpuEngineOptions& options)
    : device_(options.device) {
  check_version(plan_path, manifest);
  check_device(plan_path, manifest, device_);
  use_device();
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.reset(stream);
  runtime_.reset(nvinfer1::createInferRuntime(log_));
  log_.check(runtime_ != nullptr, "starting TensorRT");
  register_plugin(log_);
  {
    const engine::MappedFile plan(plan_path);
    engine_.reset(runtime_->deserializeCudaEngine(plan.bytes().data(), plan.bytes().size()));
  }
  if (engine_ == nullptr) {
    throw EngineError(plan_path + " was refused by TensorRT: " + log_.take("it gave no reason") +
                      "; copy or build the engine again");
  }
  facts_ = plan_facts(*engine_);
  for (const GpuProfile profile : {GpuProfile::kDecode, GpuProfile::kMixed}) {
    make_context(profile, options.nccl_communicator);
  }
  allocate_logits();
  check_cuda(cudaStreamSynchronize(stream_.get()), "loading the plan");
}

TensorRtEngine::~TensorRtEngine() {
  (void)cudaSetDevice(device_);
  if (stream_) (void)cudaStreamSynchronize(stream_.get());
}

void TensorRtEngine::use_device() const { check_cuda(cudaSetDevice(device_), "using GPU " + std::to_string(device_)); }

void TensorRtEngine::make_context(GpuProfile profile, void* nccl_communicator) {
  const auto number = static_cast<std::int32_t>(profile);
  auto& made = contexts_[static_cast<std::size_t>(profile)];
  made.reset(engine_->createExecutionContext());
  log_.check(made != nullptr, "making an execution context");
  log_.check(made->setOptimizationProfileAsync(number, stream_.get()),
             "choosing optimization profile " + std::to_string(number));
  if (nccl_communicator != nullptr) log_.check(set_communicator(*made, nccl_communicator), "setting the communicator");
}

void TensorRtEngine::allocate_logits() {
  const auto rows = static_cast<std::size_t>(std::max(facts_.max_logit_rows, facts_.max_decode_seqs));
  const std::size_t bytes = rows * static_cast<std::size_t>(facts_.vocab_size) * sizeof(float);
  host_logits_ = allocate_pinned(bytes, "logits");
  device_logits_ = allocate_device(bytes, "logits");
  for (const auto& context : contexts_) set_address(*context, engine::kLogitsName, device_logits_.get());
}

void TensorRtEngine::set_shape(nvinfer1::IExecutionContext& context, const char* name, const nvinfer1::Dims& dims) {
  if (context.setInputShape(name, dims)) return;
  std::ostringstream action;
  action << "setting the shape of " << name << " to [";
  for (int i = 0; i < dims.nbDims; ++i) action << (i > 0 ? ", " : "") << dims.d[i];
  log_.check(false, action.str() + "]");
}

void TensorRtEngine::set_address(nvinfer1::IExecutionContext& context, const char* name, void* address) {
  if (!context.setTensorAddress(name, address)) log_.check(false, std::string("setting the address of ") + name);
}

std::size_t TensorRtEngine::free_memory() const {
  use_device();
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

void TensorRtEngine::allocate_kv_cache(std::int32_t num_blocks) {
  use_device();
  for (std::size_t layer = 0; layer < facts_.layer_block_bytes.size(); ++layer) {
    const std::size_t bytes = facts_.layer_block_bytes[layer] * static_cast<std::size_t>(num_blocks);
    kv_caches_.push_back(allocate_device(bytes, "the KV cache of " + std::to_string(num_blocks) + " blocks"));
    check_cuda(cudaMemsetAsync(kv_caches_.back().get(), 0, bytes, stream_.get()), "clearing the KV cache");
    const std::string name = kv_cache_name(layer), out = kv_cache_out_name(layer);
    nvinfer1::Dims dims = engine_->getTensorShape(name.c_str());
    dims.d[0] = num_blocks;
    for (const auto& context : contexts_) {
      set_shape(*context, name.c_str(), dims);
      set_address(*context, name.c_str(), kv_caches_.back().get());
      set_address(*context, out.c_str(), kv_caches_.back().get());  // in place
    }
  }
  check_cuda(cudaStreamSynchronize(stream_.get()), "clearing the KV cache");
}

std::span<std::byte> TensorRtEngine::allocate_staging(std::size_t bytes) {
  use_device();
  host_staging_ = allocate_pinned(bytes, "the inputs of a step");
  device_staging_ = allocate_device(bytes, "the inputs of a step");
  return {host_staging_.get(), bytes};
}

void TensorRtEngine::upload(std::size_t bytes) {
  use_device();
  check_cuda(cudaMemcpyAsync(device_staging_.get(), host_staging_.get(), bytes, cudaMemcpyHostToDevice, stream_.get()),
             "copying the inputs of a step to the GPU");
}

void TensorRtEngine::bind_step(const GpuStep& step) {
  const GpuStepShape& shape = step.shape;
  const StagingLayout layout = staging_layout(shape);
  const std::array<nvinfer1::Dims, engine::kStepInputNames.size()> dims{dims_of({shape.tokens}),
                                                                        dims_of({shape.tokens}),
                                                                        dims_of({shape.seqs + 1}),
                                                                        dims_of({shape.seqs}),
                                                                        dims_of({shape.seqs, shape.max_blocks}),
                                                                        dims_of({shape.logit_rows})};
  nvinfer1::IExecutionContext& context = this->context(step.profile);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    set_shape(context, engine::kStepInputNames[i], dims[i]);
    set_address(context, engine::kStepInputNames[i], device_staging_.get() + layout.offsets[i]);
  }
}

void TensorRtEngine::enqueue(const GpuStep& step) {
  use_device();
  bind_step(step);
  if (!context(step.profile).enqueueV3(stream_.get())) log_.check(false, "running a step");
}

std::optional<std::size_t> TensorRtEngine::capture(const GpuStep& step) {
  // After a change of shapes TensorRT may do on the first run what cannot be captured. Running the step twice gives the
  // same: it writes the same keys and values to the same places.
  enqueue(step);
  check_cuda(cudaStreamSynchronize(stream_.get()), "running a step");
  if (cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    (void)cudaGetLastError();
    return std::nullopt;
  }
  const bool enqueued = context(step.profile).enqueueV3(stream_.get());
  cudaGraph_t captured = nullptr;
  const bool ended = cudaStreamEndCapture(stream_.get(), &captured) == cudaSuccess && captured != nullptr;
  const Graph graph(captured);
  cudaGraphExec_t executable = nullptr;
  if (!enqueued || !ended || cudaGraphInstantiate(&executable, graph.get(), 0) != cudaSuccess) {
    (void)cudaGetLastError();
    (void)log_.take("");  // the step runs without a graph, which is no error
    return std::nullopt;
  }
  graphs_.emplace_back(executable);
  return graphs_.size() - 1;
}

void TensorRtEngine::launch(std::size_t graph) {
  use_device();
  check_cuda(cudaGraphLaunch(graphs_.at(graph).get(), stream_.get()), "launching the graph of a step");
}

void TensorRtEngine::download(std::span<float> logits) {
  use_device();
  const std::size_t bytes = logits.size_bytes();
  if (bytes > 0) {
    check_cuda(cudaMemcpyAsync(host_logits_.get(), device_logits_.get(), bytes, cudaMemcpyDeviceToHost, stream_.get()),
               "copying logits from the GPU");
  }
  check_cuda(cudaStreamSynchronize(stream_.get()), "running a step");
  if (bytes > 0) std::memcpy(logits.data(), host_logits_.get(), bytes);
}

void TensorRtEngine::copy_block(std::int32_t source, std::int32_t destination) {
  use_device();
  for (std::size_t layer = 0; layer < kv_caches_.size(); ++layer) {
    const std::size_t bytes = facts_.layer_block_bytes[layer];
    std::byte* pool = kv_caches_[layer].get();
    check_cuda(cudaMemcpyAsync(pool + static_cast<std::size_t>(destination) * bytes,
                               pool + static_cast<std::size_t>(source) * bytes, bytes, cudaMemcpyDeviceToDevice,
                               stream_.get()),
               "copying a KV block");
  }
}

}  // namespace trtc::tensorrt
