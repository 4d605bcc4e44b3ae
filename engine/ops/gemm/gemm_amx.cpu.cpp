#include "engine/ops/gemm/gemm_amx.cpu.h"

#if defined(TRIREME_ISA_avx512)

#include "engine/ops/gemm/amx_config.cpu.h"
#include "engine/ops/gemm/amx_rows.cpu.h"

namespace trireme::cpu::avx512 {
namespace {

// The processor's tile registers, from construction to destruction. In assembly: GCC's intrinsics
// require literal register numbers, and do not declare the memory they read and write.
struct AmxTiles {
  AmxTiles() {
    const AmxConfig config;
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int t>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  template <int t>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(t) : "memory");
  }
  template <int c, int a, int b>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};

}  // namespace

void gemm_amx(const Gemv<bf16>& a, int threads) { multiply_by_tiles<AmxTiles>(a, threads); }

}  // namespace trireme::cpu::avx512

#endif
