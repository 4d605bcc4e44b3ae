// Processor features, the instruction set of the CPU kernels, and the placement of threads.
#pragma once

#include <string>

namespace trireme {

// Instruction sets the CPU kernels are compiled for, best first.
enum class Isa { kAvx512, kAvx2, kPortable };

Isa best_isa();            // the best that processor and build both have, or the one set by
                           // limit_isa()
bool has_isa(Isa isa);     // whether this build has it and it is not above best_isa()
std::string built_isas();  // "avx512 portable": instruction sets this build has kernels for
// "built without avx512 kernels, ..." if the processor has a better set than this build; else
// empty.
std::string missing_isa_note();
Isa active_isa();              // the set that kernels use now: best_isa() unless lowered
void set_active_isa(Isa isa);  // for tests that compare sets; InputError if !has_isa(isa)
// Lowers best_isa() and active_isa() for the life of the process; InputError if !has_isa(isa).
// Commands call limit_instruction_set (engine/ops/backend/instruction_set.h), which also limits the
// GEMM library.
void limit_isa(Isa isa);
const char* isa_name(Isa isa);
// Instruction set of a name of isa_name(), whether this build has it or not; "auto" is best_isa().
// InputError for any other word.
Isa parse_isa(const std::string& name);

bool cpu_has_avx512_bf16();
// Whether a bfloat16 dot product (AVX-512 BF16) is as fast as a float32 multiply-add: true on AMD
// processors that have it. On Intel's it takes about four times as long (measured: Emerald Rapids)
// for twice the work, which is no gain.
bool has_fast_bf16_dots();
std::string cpu_model_name();  // of /proc/cpuinfo; "unknown" without one
// "avx2 fma avx512f ..." for --version and reports; "none of interest" if the processor has none.
std::string cpu_features();
// Cores this process may use: the number in the affinity mask it started with or its cgroup quota
// (quota_cores() of cpu_quota.h), whichever is less.
int available_cores();

// Sets the size of the calling thread's OpenMP team to `threads` and binds the team to `threads`
// consecutive cores of the affinity mask the process started with, from core number `first` (from
// 0) of the mask on, with wrap-around. Each worker thread gets one core. The calling thread may use
// all of them, and so may threads that OpenMP starts later, after a library has requested a smaller
// team. Names the worker threads and gives each thread an alternate signal stack (signal_stack.h).
// CheckFailed if first < 0 or threads < 1; no effect on binding if the system refuses it.
void pin_team(int first, int threads);

// Restricts the calling thread to the cores that pin_team(first, count) would use. Same errors.
void allow_cores(int first, int count);

}  // namespace trireme
