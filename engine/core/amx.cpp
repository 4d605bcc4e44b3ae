#include "engine/core/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trireme {
namespace {

#if defined(__x86_64__)
constexpr unsigned kAmxBits = 1U << 22 | 1U << 24;  // AMX-BF16, AMX-TILE: leaf 7, EDX
constexpr long kRequestPermission = 0x1023, kTileData = 18;

bool request() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBits) != kAmxBits) return false;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool request() { return false; }
#endif

}  // namespace

bool may_use_amx_bf16() {
  static const bool given = request();
  return given;
}

}  // namespace trireme
