// trtc::PagedAttention as TensorRT sees it: rotary embedding, KV write and attention over the paged cache in one layer.
// Inputs, outputs and fields: trtc/targets/tensorrt/plugin.py, whose class of the same name builds engines where no
// GPU is at hand. This one runs them, and can build them too.
#pragma once

#include <NvInferRuntime.h>

#include <array>
#include <memory>

#include "plugins/attention_fields.h"
#include "plugins/attention_kernels.h"
#include "plugins/attention_launch.h"

namespace trtc::plugins {

// What TensorRT calls must not throw: a failure is logged as an error, and null or a status other than 0 returned.
class PagedAttentionPlugin final : public nvinfer1::IPluginV3,
                                   public nvinfer1::IPluginV3OneCore,
                                   public nvinfer1::IPluginV3OneBuildV2,
                                   public nvinfer1::IPluginV3OneRuntime {
 public:
  explicit PagedAttentionPlugin(AttentionFields fields);

  // IPluginV3
  nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
  nvinfer1::IPluginV3* clone() noexcept override;

  // IPluginV3OneCore
  nvinfer1::AsciiChar const* getPluginName() const noexcept override { return kPluginName; }
  nvinfer1::AsciiChar const* getPluginVersion() const noexcept override { return kPluginVersion; }
  nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override { return kPluginNamespace; }

  // IPluginV3OneBuildV2
  int32_t getNbOutputs() const noexcept override { return kNumOutputs; }
  int32_t getOutputDataTypes(nvinfer1::DataType* outputTypes, int32_t nbOutputs, nvinfer1::DataType const* inputTypes,
                             int32_t nbInputs) const noexcept override;
  int32_t getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs, nvinfer1::DimsExprs const* shapeInputs,
                          int32_t nbShapeInputs, nvinfer1::DimsExprs* outputs, int32_t nbOutputs,
                          nvinfer1::IExprBuilder& exprBuilder) noexcept override;
  bool supportsFormatCombination(int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut, int32_t nbInputs,
                                 int32_t nbOutputs) noexcept override;
  int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, int32_t nbInputs,
                          nvinfer1::DynamicPluginTensorDesc const* out, int32_t nbOutputs) noexcept override;
  size_t getWorkspaceSize(nvinfer1::DynamicPluginTensorDesc const* inputs, int32_t nbInputs,
                          nvinfer1::DynamicPluginTensorDesc const* outputs, int32_t nbOutputs) const noexcept override;
  int32_t getAliasedInput(int32_t outputIndex) noexcept override;

  // IPluginV3OneRuntime
  int32_t onShapeChange(nvinfer1::PluginTensorDesc const* in, int32_t nbInputs, nvinfer1::PluginTensorDesc const* out,
                        int32_t nbOutputs) noexcept override;
  int32_t enqueue(nvinfer1::PluginTensorDesc const* inputDesc, nvinfer1::PluginTensorDesc const* outputDesc,
                  void const* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t stream) noexcept override;
  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
  nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override;

 private:
  static constexpr int32_t kNumOutputs = 2;

  int32_t num_inputs() const;
  nvinfer1::DataType type_of(int32_t position) const;

  const AttentionFields fields_;
  std::shared_ptr<const AttentionKernels> kernels_;  // loaded when shapes are first set
  std::array<nvinfer1::PluginField, kFields.size()> serialized_;
  nvinfer1::PluginFieldCollection collection_{};
};

class PagedAttentionCreator final : public nvinfer1::IPluginCreatorV3One {
 public:
  PagedAttentionCreator();

  // Null, and an error in the log that names the field, when the fields are not right.
  nvinfer1::IPluginV3* createPlugin(nvinfer1::AsciiChar const* name, nvinfer1::PluginFieldCollection const* fc,
                                    nvinfer1::TensorRTPhase phase) noexcept override;
  nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return &collection_; }
  nvinfer1::AsciiChar const* getPluginName() const noexcept override { return kPluginName; }
  nvinfer1::AsciiChar const* getPluginVersion() const noexcept override { return kPluginVersion; }
  nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override { return kPluginNamespace; }

 private:
  std::array<nvinfer1::PluginField, kFields.size()> names_;
  nvinfer1::PluginFieldCollection collection_{};
};

}  // namespace trtc::plugins
