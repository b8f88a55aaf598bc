#include "plan_facts.h"

#include <algorithm>
#include <limits>
#include <string>

#include "engine/binding_names.h"
#include "trtc/errors.h"

namespace trtc::tensorrt {
namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::TensorIOMode;

constexpr int kKvRank = 5, kKvBlocks = 0, kKvBlockSize = 3;  // [blocks, 2, kv_heads, block_size, head_dim]

[[noreturn]] void fail(const std::string& problem) {
  throw EngineError("the plan " + problem + "; build the engine again");
}

std::int32_t as_int32(std::int64_t value) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, std::numeric_limits<std::int32_t>::max()));
}

void check_binding(const nvinfer1::ICudaEngine& engine, const std::string& name, TensorIOMode mode, DataType type,
                   int rank) {
  const bool right = engine.getTensorIOMode(name.c_str()) == mode && engine.getTensorDataType(name.c_str()) == type &&
                     engine.getTensorShape(name.c_str()).nbDims == rank;
  if (!right) fail("has no binding " + name + " of the type and rank that a step gives it");
}

std::size_t element_bytes(DataType type, const std::string& name) {
  switch (type) {
    case DataType::kFLOAT:
      return 4;
    case DataType::kHALF:
    case DataType::kBF16:
      return 2;
    case DataType::kFP8:
    case DataType::kINT8:
      return 1;
    default:
      fail("stores " + name + " in a type that this version does not know");
  }
}

// The largest size of a dimension of an input in a profile.
std::int32_t largest(const nvinfer1::ICudaEngine& engine, const std::string& name, GpuProfile profile, int dimension) {
  const Dims dims =
      engine.getProfileShape(name.c_str(), static_cast<std::int32_t>(profile), nvinfer1::OptProfileSelector::kMAX);
  if (dimension >= dims.nbDims) fail("has a profile without a range for " + name);
  return as_int32(dims.d[dimension]);
}

std::int32_t count_layers(const nvinfer1::ICudaEngine& engine) {
  std::int32_t layers = 0;
  for (std::int32_t i = 0; i < engine.getNbIOTensors(); ++i) {
    const char* name = engine.getIOTensorName(i);
    layers +=
        std::string(name).starts_with(engine::kKvCachePrefix) && engine.getTensorIOMode(name) == TensorIOMode::kINPUT;
  }
  return layers;
}

void read_kv_caches(const nvinfer1::ICudaEngine& engine, GpuEngineFacts& facts) {
  facts.max_kv_blocks = std::numeric_limits<std::int32_t>::max();
  const auto layers = static_cast<std::size_t>(count_layers(engine));
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const std::string name = kv_cache_name(layer), out = kv_cache_out_name(layer);
    const DataType type = engine.getTensorDataType(name.c_str());
    check_binding(engine, name, TensorIOMode::kINPUT, type, kKvRank);
    check_binding(engine, out, TensorIOMode::kOUTPUT, type, kKvRank);
    const Dims dims = engine.getTensorShape(name.c_str());
    std::size_t bytes = element_bytes(type, name);
    for (int i = 1; i < kKvRank; ++i) bytes *= static_cast<std::size_t>(as_int32(dims.d[i]));
    facts.layer_block_bytes.push_back(bytes);
    facts.tokens_per_block = as_int32(dims.d[kKvBlockSize]);
    for (const GpuProfile profile : {GpuProfile::kDecode, GpuProfile::kMixed}) {
      facts.max_kv_blocks = std::min(facts.max_kv_blocks, largest(engine, name, profile, kKvBlocks));
    }
  }
}

}  // namespace

std::string kv_cache_name(std::size_t layer) { return engine::kKvCachePrefix + std::to_string(layer); }

std::string kv_cache_out_name(std::size_t layer) { return kv_cache_name(layer) + engine::kKvCacheOutSuffix; }

GpuEngineFacts plan_facts(const nvinfer1::ICudaEngine& engine) {
  if (engine.getNbOptimizationProfiles() != static_cast<std::int32_t>(kNumGpuProfiles)) {
    fail("has " + std::to_string(engine.getNbOptimizationProfiles()) + " profiles, expected decode and mixed");
  }
  constexpr std::array<const char*, 6> kNames = engine::kStepInputNames;
  constexpr const char *kInputIds = kNames[0], *kContextLens = kNames[3], *kBlockTable = kNames[4],
                       *kLogitRows = kNames[5];
  for (const char* name : kNames) {
    check_binding(engine, name, TensorIOMode::kINPUT, DataType::kINT32, name == kBlockTable ? 2 : 1);
  }
  check_binding(engine, engine::kLogitsName, TensorIOMode::kOUTPUT, DataType::kFLOAT, 2);
  GpuEngineFacts facts;
  facts.vocab_size = as_int32(engine.getTensorShape(engine::kLogitsName).d[1]);
  facts.max_decode_seqs = largest(engine, kContextLens, GpuProfile::kDecode, 0);
  facts.max_seqs = largest(engine, kContextLens, GpuProfile::kMixed, 0);
  facts.max_tokens = largest(engine, kInputIds, GpuProfile::kMixed, 0);
  facts.max_logit_rows = largest(engine, kLogitRows, GpuProfile::kMixed, 0);
  facts.max_columns = std::min(largest(engine, kBlockTable, GpuProfile::kDecode, 1),
                               largest(engine, kBlockTable, GpuProfile::kMixed, 1));
  read_kv_caches(engine, facts);
  return facts;
}

}  // namespace trtc::tensorrt
