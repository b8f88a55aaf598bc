#include "plugins/paged_attention_plugin.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "plugins/cuda_driver.h"
#include "trtc/errors.h"

namespace trtc::plugins {
namespace {

using nvinfer1::DataType;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

constexpr int32_t kKvCache = static_cast<int32_t>(Argument::kKvCache);
constexpr int32_t kContextLens = static_cast<int32_t>(Argument::kContextLens);
constexpr int32_t kBlockTable = static_cast<int32_t>(Argument::kBlockTable);
constexpr int32_t kOutput = 0, kKvCacheOut = 1;  // outputs

void log_error(const std::string& message) {
  nvinfer1::ILogger* logger = getLogger();
  if (logger != nullptr) logger->log(nvinfer1::ILogger::Severity::kERROR, message.c_str());
}

// Runs `body`; what it throws is logged and `failed` returned instead.
template <typename Result, typename Body>
Result guarded(Result failed, const Body& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    log_error(error.what());
  } catch (...) {
    log_error("trtc::PagedAttention failed with an unknown exception");
  }
  return failed;
}

PluginFieldType field_type(FieldType type) {
  switch (type) {
    case FieldType::kInt32:
      return PluginFieldType::kINT32;
    case FieldType::kFloat32:
      return PluginFieldType::kFLOAT32;
    case FieldType::kBytes:
      break;
  }
  return PluginFieldType::kCHAR;
}

template <typename T>
FieldValue number_of(const PluginField& field) {
  if (field.length != 1 || field.data == nullptr) {
    throw EngineError("the field " + std::string(field.name) + " of trtc::PagedAttention has " +
                      std::to_string(field.length) + " values, expected 1");
  }
  const T value = *static_cast<const T*>(field.data);
  if constexpr (std::is_integral_v<T>)
    return {field.name, std::int64_t{value}};
  else
    return {field.name, double{value}};
}

FieldValue value_of(const PluginField& field) {
  switch (field.type) {
    case PluginFieldType::kINT32:
      return number_of<std::int32_t>(field);
    case PluginFieldType::kINT64:
      return number_of<std::int64_t>(field);
    case PluginFieldType::kFLOAT32:
      return number_of<float>(field);
    case PluginFieldType::kFLOAT64:
      return number_of<double>(field);
    case PluginFieldType::kCHAR:
    case PluginFieldType::kINT8:
    case PluginFieldType::kUNKNOWN:
      return {field.name, std::span(static_cast<const std::byte*>(field.data),
                                    field.data == nullptr ? 0 : static_cast<std::size_t>(field.length))};
    default:
      throw EngineError("the field " + std::string(field.name) + " of trtc::PagedAttention has type " +
                        std::to_string(static_cast<int>(field.type)) + ", which this version does not read");
  }
}

std::vector<FieldValue> values_of(const nvinfer1::PluginFieldCollection& collection) {
  std::vector<FieldValue> values;
  for (int32_t i = 0; i < collection.nbFields; ++i) {
    const std::string name = collection.fields[i].name;
    // The parser of ONNX files passes on what says which plugin a node is.
    if (name != "plugin_version" && name != "plugin_namespace") values.push_back(value_of(collection.fields[i]));
  }
  return values;
}

}  // namespace

PagedAttentionPlugin::PagedAttentionPlugin(AttentionFields fields) : fields_(std::move(fields)) {
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    const FieldSpec& spec = kFields[i];
    const bool bytes = spec.type == FieldType::kBytes;
    serialized_[i] = {spec.name, bytes ? fields_.kernels->data() : field_address(fields_, spec.name),
                      field_type(spec.type), bytes ? static_cast<int32_t>(fields_.kernels->size()) : 1};
  }
  collection_ = {static_cast<int32_t>(serialized_.size()), serialized_.data()};
}

nvinfer1::IPluginCapability* PagedAttentionPlugin::getCapabilityInterface(
    nvinfer1::PluginCapabilityType type) noexcept {
  switch (type) {
    case nvinfer1::PluginCapabilityType::kCORE:
      return static_cast<nvinfer1::IPluginV3OneCore*>(this);
    case nvinfer1::PluginCapabilityType::kBUILD:
      return static_cast<nvinfer1::IPluginV3OneBuildV2*>(this);
    case nvinfer1::PluginCapabilityType::kRUNTIME:
      return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
  }
  return nullptr;
}

nvinfer1::IPluginV3* PagedAttentionPlugin::clone() noexcept {
  // Without its kernels: the copy may serve in another CUDA context. Where it does not, it finds them loaded.
  return guarded<nvinfer1::IPluginV3*>(nullptr, [this] { return new PagedAttentionPlugin(fields_); });
}

int32_t PagedAttentionPlugin::num_inputs() const {
  return static_cast<int32_t>(kNumPluginInputs) - (fields_.rotary_dim == 0 ? 2 : 0);
}

DataType PagedAttentionPlugin::type_of(int32_t position) const {
  const DataType compute = fields_.compute_dtype == ComputeDtype::kFloat16 ? DataType::kHALF : DataType::kBF16;
  const DataType cache = fields_.cache_dtype == CacheDtype::kAsCompute ? compute : DataType::kFP8;
  if (position >= num_inputs()) return position - num_inputs() == kKvCacheOut ? cache : compute;
  if (position == kKvCache) return cache;
  if (position < kKvCache) return compute;
  return position <= kBlockTable ? DataType::kINT32 : DataType::kFLOAT;
}

int32_t PagedAttentionPlugin::getOutputDataTypes(DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes,
                                                 int32_t nbInputs) const noexcept {
  return guarded<int32_t>(1, [&] {
    if (nbInputs != num_inputs() || nbOutputs != kNumOutputs) {
      throw EngineError("trtc::PagedAttention has " + std::to_string(nbInputs) + " inputs and " +
                        std::to_string(nbOutputs) + " outputs, expected " + std::to_string(num_inputs()) + " and 2");
    }
    outputTypes[kOutput] = inputTypes[0];
    outputTypes[kKvCacheOut] = inputTypes[kKvCache];
    return 0;
  });
}

int32_t PagedAttentionPlugin::getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs,
                                              nvinfer1::DimsExprs const* /*shapeInputs*/, int32_t /*nbShapeInputs*/,
                                              nvinfer1::DimsExprs* outputs, int32_t nbOutputs,
                                              nvinfer1::IExprBuilder& /*exprBuilder*/) noexcept {
  if (nbInputs != num_inputs() || nbOutputs != kNumOutputs) return 1;
  outputs[kOutput] = inputs[0];
  outputs[kKvCacheOut] = inputs[kKvCache];
  return 0;
}

bool PagedAttentionPlugin::supportsFormatCombination(int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut,
                                                     int32_t nbInputs, int32_t nbOutputs) noexcept {
  return nbInputs == num_inputs() && nbOutputs == kNumOutputs &&
         inOut[pos].desc.format == nvinfer1::TensorFormat::kLINEAR && inOut[pos].desc.type == type_of(pos);
}

int32_t PagedAttentionPlugin::configurePlugin(nvinfer1::DynamicPluginTensorDesc const* /*in*/, int32_t nbInputs,
                                              nvinfer1::DynamicPluginTensorDesc const* /*out*/,
                                              int32_t nbOutputs) noexcept {
  return nbInputs == num_inputs() && nbOutputs == kNumOutputs ? 0 : 1;
}

size_t PagedAttentionPlugin::getWorkspaceSize(nvinfer1::DynamicPluginTensorDesc const* inputs, int32_t /*nbInputs*/,
                                              nvinfer1::DynamicPluginTensorDesc const* /*outputs*/,
                                              int32_t /*nbOutputs*/) const noexcept {
  return workspace_layout(fields_, static_cast<std::int32_t>(inputs[0].max.d[0])).bytes;
}

int32_t PagedAttentionPlugin::getAliasedInput(int32_t outputIndex) noexcept {
  return outputIndex == kKvCacheOut ? kKvCache : -1;
}

int32_t PagedAttentionPlugin::onShapeChange(nvinfer1::PluginTensorDesc const* /*in*/, int32_t nbInputs,
                                            nvinfer1::PluginTensorDesc const* /*out*/, int32_t nbOutputs) noexcept {
  return guarded<int32_t>(1, [&] {
    if (kernels_ == nullptr) kernels_ = shared_kernels(cuda_driver(), fields_);
    return nbInputs == num_inputs() && nbOutputs == kNumOutputs ? 0 : 1;
  });
}

int32_t PagedAttentionPlugin::enqueue(nvinfer1::PluginTensorDesc const* inputDesc,
                                      nvinfer1::PluginTensorDesc const* /*outputDesc*/, void const* const* inputs,
                                      void* const* outputs, void* workspace, cudaStream_t stream) noexcept {
  return guarded<int32_t>(1, [&] {
    if (kernels_ == nullptr) throw ExecutorError("trtc::PagedAttention was enqueued before its shapes were set");
    if (outputs[kKvCacheOut] != inputs[kKvCache]) {
      throw ExecutorError("the KV cache of layer " + std::to_string(fields_.layer) +
                          " and its output differ in address; give both the same");
    }
    StepPointers pointers;
    std::copy_n(inputs, num_inputs(), pointers.inputs.begin());
    pointers.output = outputs[kOutput];
    pointers.workspace = workspace;
    const StepShape step{static_cast<std::int32_t>(inputDesc[0].dims.d[0]),
                         static_cast<std::int32_t>(inputDesc[kContextLens].dims.d[0]),
                         static_cast<std::int32_t>(inputDesc[kBlockTable].dims.d[1])};
    kernels_->launch(step, pointers, stream);
    return 0;
  });
}

// TensorRT attaches plugins while it builds too, where there may be no GPU, and does not survive a null: the kernels
// are loaded when the first shapes are known.
nvinfer1::IPluginV3* PagedAttentionPlugin::attachToContext(nvinfer1::IPluginResourceContext* /*context*/) noexcept {
  return clone();
}

nvinfer1::PluginFieldCollection const* PagedAttentionPlugin::getFieldsToSerialize() noexcept { return &collection_; }

PagedAttentionCreator::PagedAttentionCreator() {
  for (std::size_t i = 0; i < kFields.size(); ++i)
    names_[i] = {kFields[i].name, nullptr, field_type(kFields[i].type), 1};
  collection_ = {static_cast<int32_t>(names_.size()), names_.data()};
}

nvinfer1::IPluginV3* PagedAttentionCreator::createPlugin(nvinfer1::AsciiChar const* /*name*/,
                                                         nvinfer1::PluginFieldCollection const* fc,
                                                         nvinfer1::TensorRTPhase /*phase*/) noexcept {
  return guarded<nvinfer1::IPluginV3*>(nullptr, [fc] { return new PagedAttentionPlugin(read_fields(values_of(*fc))); });
}

}  // namespace trtc::plugins
