// A plan on one GPU: TensorRT's runtime behind GpuEngine.
#pragma once

#include <NvInferRuntime.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu_engine.h"
#include "cuda_memory.h"
#include "tensorrt_log.h"

namespace trtc::tensorrt {

class TensorRtEngine final : public GpuEngine {
 public:
  // Throws EngineError when the plan is damaged or made for another GPU or version, ExecutorError when the device
  // refuses.
  TensorRtEngine(const std::string& plan_path, const engine::TensorRtManifest& manifest,
                 const GpuEngineOptions& options);
  ~TensorRtEngine() override;

  const GpuEngineFacts& facts() const override { return facts_; }
  std::size_t free_memory() const override;
  void allocate_kv_cache(std::int32_t num_blocks) override;
  std::span<std::byte> allocate_staging(std::size_t bytes) override;
  void upload(std::size_t bytes) override;
  void enqueue(const GpuStep& step) override;
  std::optional<std::size_t> capture(const GpuStep& step) override;
  void launch(std::size_t graph) override;
  void download(std::span<float> logits) override;
  void copy_block(std::int32_t source, std::int32_t destination) override;

 private:
  void use_device() const;
  void make_context(GpuProfile profile, void* nccl_communicator);
  void allocate_logits();
  nvinfer1::IExecutionContext& context(GpuProfile profile) { return *contexts_[static_cast<std::size_t>(profile)]; }
  void set_shape(nvinfer1::IExecutionContext& context, const char* name, const nvinfer1::Dims& dims);
  void set_address(nvinfer1::IExecutionContext& context, const char* name, void* address);
  void bind_step(const GpuStep& step);

  const int device_;
  Log log_;
  GpuEngineFacts facts_;
  // In the order of their making: each needs those before it until it is gone.
  Stream stream_;
  std::unique_ptr<nvinfer1::IRuntime> runtime_;
  std::unique_ptr<nvinfer1::ICudaEngine> engine_;
  std::array<std::unique_ptr<nvinfer1::IExecutionContext>, kNumGpuProfiles> contexts_;
  std::vector<DeviceMemory> kv_caches_;  // by layer
  PinnedMemory host_staging_;
  DeviceMemory device_staging_;
  PinnedMemory host_logits_;
  DeviceMemory device_logits_;
  std::vector<GraphExec> graphs_;
};

}  // namespace trtc::tensorrt
