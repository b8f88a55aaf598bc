#include "common/cpu_features.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trtc/errors.h"

#if defined(TRTC_X86)
#include <cpuid.h>
#endif

namespace trtc {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"portable", "avx2", "avx512", "avx512_bf16"};

#if defined(TRTC_X86)

struct CpuidLeaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid(unsigned leaf, unsigned subleaf) {
  CpuidLeaf r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // leaves zeros when the leaf does not exist
  return r;
}

bool bit(unsigned word, int index) { return (word >> index) & 1u; }

// XCR0: which register states the operating system saves on a context switch.
std::uint64_t enabled_states() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

// Bits as in Intel's Software Developer's Manual, volume 2, CPUID.
Isa detect() {
  const CpuidLeaf one = cpuid(1, 0);
  const CpuidLeaf seven = cpuid(7, 0);
  const CpuidLeaf seven_one = cpuid(7, 1);

  const bool osxsave = bit(one.ecx, 27);
  if (!osxsave) return Isa::kPortable;
  const std::uint64_t states = enabled_states();

  const bool ymm_saved = (states & 0x6) == 0x6;
  const bool avx = bit(one.ecx, 28), fma = bit(one.ecx, 12), f16c = bit(one.ecx, 29), avx2 = bit(seven.ebx, 5);
  if (!(ymm_saved && avx && fma && f16c && avx2)) return Isa::kPortable;

  const bool zmm_saved = (states & 0xe6) == 0xe6;
  const bool f = bit(seven.ebx, 16), dq = bit(seven.ebx, 17), bw = bit(seven.ebx, 30), vl = bit(seven.ebx, 31);
  const bool vnni = bit(seven.ecx, 11);
  if (!(zmm_saved && f && dq && bw && vl && vnni)) return Isa::kAvx2;

  const bool bf16 = bit(seven_one.eax, 5);
  return bf16 ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

#else

Isa detect() { return Isa::kPortable; }

#endif

}  // namespace

std::string_view isa_name(Isa isa) { return kNames.at(static_cast<std::size_t>(isa)); }

Isa detect_isa() {
  static const Isa detected = detect();
  return detected;
}

Isa selected_isa() {
  const Isa best = detect_isa();
  const char* wanted = std::getenv("TRTC_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return best;
  for (std::size_t level = 0; level < kNames.size(); ++level) {
    if (kNames[level] != wanted) continue;
    if (static_cast<Isa>(level) <= best) return static_cast<Isa>(level);
    throw EngineError("TRTC_CPU_ISA asks for " + std::string(wanted) + " but this machine's highest level is " +
                      std::string(isa_name(best)) + "; unset it or name a lower level");
  }
  throw EngineError("TRTC_CPU_ISA is '" + std::string(wanted) +
                    "'; expected portable, avx2, avx512 or avx512_bf16 (unset: the best this machine has)");
}

}  // namespace trtc
