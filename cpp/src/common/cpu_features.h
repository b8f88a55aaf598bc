// Which instruction sets the kernels may use on this machine.
#pragma once

#include <string_view>

namespace trtc {

// Levels of kernels, each including the ones before it. kAvx512 means F, BW, DQ, VL and VNNI.
enum class Isa : int { kPortable = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Bf16 = 3 };

// "portable", "avx2", "avx512", "avx512_bf16".
std::string_view isa_name(Isa isa);

// The highest level that this processor and operating system support.
Isa detect_isa();

// The level the process uses: detect_isa(), or the one named by TRTC_CPU_ISA.
// Throws EngineError when TRTC_CPU_ISA names an unknown level or one this machine lacks. Read anew on every call.
Isa selected_isa();

}  // namespace trtc
