// The compiled attention kernels that an engine carries: reads the bytes that
// trtc/targets/tensorrt/kernel_bundle.py writes, which also says their format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace trtc::plugins {

// One compiled kernel. Sizes in bytes, of a block (shared) or a thread (spill). Views into the bundle's bytes.
struct KernelImage {
  std::string_view role;  // "rotary_kv_write", "paged_attention" or "combine_splits"
  std::string_view entry;
  std::uint32_t num_warps = 0;
  std::uint32_t shared_bytes = 0;
  std::uint32_t registers = 0;
  std::uint32_t spill_bytes = 0;
  std::vector<std::pair<std::string_view, std::int64_t>> constants;
  std::span<const std::byte> cubin;

  // Throws EngineError when the kernel was compiled without a constant of that name.
  std::int64_t constant(std::string_view name) const;
};

struct KernelBundle {
  std::vector<KernelImage> kernels;

  // Throws EngineError when the bundle has none of that role.
  const KernelImage& kernel(std::string_view role) const;
};

// Throws EngineError for bytes that are no bundle, hold a role twice, or hold a cubin whose parts reach beyond its end:
// the CUDA driver takes a cubin without its length.
KernelBundle parse_kernel_bundle(std::span<const std::byte> bytes);

}  // namespace trtc::plugins
