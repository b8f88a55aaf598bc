#include "plugins/kernel_bundle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "trtc/errors.h"

namespace trtc::plugins {
namespace {

static_assert(std::endian::native == std::endian::little, "bundles are little-endian and read as they are");

constexpr std::string_view kMagic = "TRTCKRN1";
constexpr std::uint32_t kMostWarps = 32;             // a block has at most 1024 threads
constexpr std::uint32_t kMostSharedBytes = 1 << 20;  // above what any GPU has

[[noreturn]] void fail(const std::string& problem) {
  throw EngineError("a kernel bundle " + problem + "; build the engine again");
}

// A place in the bytes that never passes their end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("of " + std::to_string(bytes_.size()) + " bytes is cut short");
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view text() {
    const auto bytes = take(number<std::uint16_t>());
    const std::string_view name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto printable = [](char c) { return c > ' ' && c <= '~'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), printable)) {
      fail("has a name that is empty or not printable ASCII");
    }
    return name;
  }

  std::size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

template <typename T>
T number_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool reaches_beyond(std::uint64_t offset, std::uint64_t size, std::uint64_t end) {
  return offset > end || size > end - offset;
}

// ELF-64 (System V ABI, chapter 4): the header, its two tables and what they point to lie inside the cubin.
void check_cubin(const KernelImage& kernel) {
  constexpr std::size_t kHeader = 64, kProgram = 56, kSection = 64;
  constexpr std::uint32_t kSectionWithoutBytes = 8;
  const auto broken = [&kernel](const char* problem) {
    fail("has a cubin of kernel " + std::string(kernel.role) + " that " + problem);
  };
  const std::span<const std::byte> cubin = kernel.cubin;
  if (cubin.size() < kHeader || std::memcmp(cubin.data(),
                                            "\x7f"
                                            "ELF\x02\x01",
                                            6) != 0)
    broken("is no ELF file");
  const auto program_at = number_at<std::uint64_t>(cubin, 32), section_at = number_at<std::uint64_t>(cubin, 40);
  const std::size_t programs = number_at<std::uint16_t>(cubin, 56), sections = number_at<std::uint16_t>(cubin, 60);
  if (programs > 0 && number_at<std::uint16_t>(cubin, 54) != kProgram) broken("has segments of an unknown form");
  if (sections == 0 || number_at<std::uint16_t>(cubin, 58) != kSection) broken("has no sections or an unknown form");
  if (reaches_beyond(program_at, programs * kProgram, cubin.size()) ||
      reaches_beyond(section_at, sections * kSection, cubin.size())) {
    broken("is cut short");
  }
  for (std::size_t i = 0; i < programs; ++i) {
    const auto entry = cubin.subspan(program_at + i * kProgram, kProgram);
    const auto offset = number_at<std::uint64_t>(entry, 8), size = number_at<std::uint64_t>(entry, 32);
    if (reaches_beyond(offset, size, cubin.size())) broken("is cut short");
  }
  for (std::size_t i = 0; i < sections; ++i) {
    const auto entry = cubin.subspan(section_at + i * kSection, kSection);
    const auto offset = number_at<std::uint64_t>(entry, 24), size = number_at<std::uint64_t>(entry, 32);
    const bool has_bytes = number_at<std::uint32_t>(entry, 4) != kSectionWithoutBytes;
    if (has_bytes && reaches_beyond(offset, size, cubin.size())) broken("is cut short");
  }
}

KernelImage read_kernel(Cursor& cursor) {
  KernelImage kernel;
  kernel.role = cursor.text();
  kernel.entry = cursor.text();
  kernel.num_warps = cursor.number<std::uint32_t>();
  kernel.shared_bytes = cursor.number<std::uint32_t>();
  kernel.registers = cursor.number<std::uint32_t>();
  kernel.spill_bytes = cursor.number<std::uint32_t>();
  if (kernel.num_warps < 1 || kernel.num_warps > kMostWarps || kernel.shared_bytes > kMostSharedBytes) {
    fail("says that kernel " + std::string(kernel.role) + " needs " + std::to_string(kernel.num_warps) + " warps and " +
         std::to_string(kernel.shared_bytes) + " bytes of shared memory, which no GPU has");
  }
  const auto constants = cursor.number<std::uint16_t>();
  for (std::uint16_t i = 0; i < constants; ++i) {
    const std::string_view name = cursor.text();
    kernel.constants.emplace_back(name, cursor.number<std::int64_t>());
  }
  kernel.cubin = cursor.take(cursor.number<std::uint64_t>());
  check_cubin(kernel);
  return kernel;
}

}  // namespace

std::int64_t KernelImage::constant(std::string_view name) const {
  for (const auto& [key, value] : constants) {
    if (key == name) return value;
  }
  fail("has a kernel " + std::string(role) + " without the constant " + std::string(name));
}

const KernelImage& KernelBundle::kernel(std::string_view role) const {
  for (const KernelImage& kernel : kernels) {
    if (kernel.role == role) return kernel;
  }
  fail("lacks the kernel " + std::string(role));
}

KernelBundle parse_kernel_bundle(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  const auto magic = cursor.take(kMagic.size());
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    fail("does not begin with " + std::string(kMagic));
  }
  KernelBundle bundle;
  const auto count = cursor.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    KernelImage kernel = read_kernel(cursor);
    for (const KernelImage& other : bundle.kernels) {
      if (other.role == kernel.role) fail("has the kernel " + std::string(kernel.role) + " twice");
    }
    bundle.kernels.push_back(std::move(kernel));
  }
  if (cursor.left() != 0) fail("has " + std::to_string(cursor.left()) + " bytes too many");
  return bundle;
}

}  // namespace trtc::plugins
