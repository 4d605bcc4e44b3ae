#include "engine/core/cpu.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <vector>

#include "engine/core/built_isas.h"
#include "engine/core/cpu_quota.h"
#include "engine/core/error.h"
#include "engine/core/signal_stack.h"
#include "engine/core/thread_name.h"

namespace trireme {
namespace {

Isa detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (v4) return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

const Isa g_processors = detect();

constexpr std::array kAllIsas{Isa::kAvx512, Isa::kAvx2, Isa::kPortable};

constexpr bool is_built(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return TRIREME_BUILT_AVX512 != 0;
    case Isa::kAvx2: return TRIREME_BUILT_AVX2 != 0;
    case Isa::kPortable: break;
  }
  return true;
}

Isa best_built() {
  return *std::ranges::find_if(kAllIsas, [](Isa i) { return i >= g_processors && is_built(i); });
}

std::atomic<Isa> g_best{best_built()};
std::atomic<Isa> g_active{g_best.load()};

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &set)) cores.push_back(c);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

// The affinity mask at process start: pinning the main thread must not shrink it.
const std::vector<int> g_cores = allowed_cores();

}  // namespace

Isa best_isa() { return g_best.load(std::memory_order_relaxed); }

Isa active_isa() { return g_active.load(std::memory_order_relaxed); }

bool has_isa(Isa isa) { return isa >= best_isa() && is_built(isa); }

std::string built_isas() {
  std::string out;
  for (const Isa isa : kAllIsas)
    if (is_built(isa)) out += (out.empty() ? "" : " ") + std::string(isa_name(isa));
  return out;
}

std::string missing_isa_note() {
  if (is_built(g_processors)) return "";
  return concat("built without ", isa_name(g_processors),
                " kernels, which this processor would run faster: build with -DTRIREME_ISA=all");
}

void set_active_isa(Isa isa) {
  if (isa >= g_processors && !is_built(isa))
    fail_input("instruction set \"", isa_name(isa), "\" is not in this build (it has ",
               built_isas(), "): build with -DTRIREME_ISA=all");
  if (isa < best_isa())
    fail_input("instruction set \"", isa_name(isa),
               "\" is not available here (best: ", isa_name(best_isa()), ")");
  g_active.store(isa, std::memory_order_relaxed);
}

void limit_isa(Isa isa) {
  set_active_isa(isa);
  g_best.store(isa, std::memory_order_relaxed);
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx2: return "avx2";
    case Isa::kPortable: return "portable";
  }
  TRIREME_UNREACHABLE("isa ", static_cast<int>(isa));
}

Isa parse_isa(const std::string& name) {
  if (name == "auto") return best_isa();
  for (const Isa isa : kAllIsas)
    if (name == isa_name(isa)) return isa;
  fail_input("instruction set \"", name,
             "\" is not supported; supported: auto, avx512, avx2, portable");
}

bool cpu_has_avx512_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool has_fast_bf16_dots() {
#if defined(__x86_64__)
  return cpu_has_avx512_bf16() && __builtin_cpu_is("amd");
#else
  return false;
#endif
}

namespace {

std::string cpuinfo_line(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key))
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

}  // namespace

std::string cpu_model_name() { return cpuinfo_line("model name"); }

std::string cpu_features() {
  const std::string flags = " " + cpuinfo_line("flags") + " ";
  std::string out;
  for (const char* name : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl",
                           "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16"})
    if (flags.find(std::string(" ") + name + " ") != std::string::npos)
      out += (out.empty() ? "" : " ") + std::string(name);
  return out.empty() ? "none of interest" : out;
}

int available_cores() {
  static const int cores = std::min(static_cast<int>(g_cores.size()), quota_cores());
  return cores;
}

void pin_team(int first, int threads) {
  TRIREME_CHECK(first >= 0 && threads >= 1, "pin_team(", first, ", ", threads, ")");
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
#pragma omp parallel num_threads(threads)
  {
    use_signal_stack();
    const int member = omp_get_thread_num();
    if (member > 0) name_thread("compute", static_cast<size_t>(member));
    allow_cores(first + member, member > 0 ? 1 : threads);
  }
}

void allow_cores(int first, int count) {
  TRIREME_CHECK(first >= 0 && count >= 1, "allow_cores(", first, ", ", count, ")");
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = 0; i < count; ++i)
    CPU_SET(g_cores[static_cast<size_t>(first + i) % g_cores.size()], &set);
  sched_setaffinity(0, sizeof set, &set);  // advisory: a refusal costs only speed
}

}  // namespace trireme
