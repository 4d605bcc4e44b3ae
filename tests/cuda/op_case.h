// Registry of ops. For each op it has cases with operands, which run on the CPU and on a GPU and
// are compared. One source for two programs: the tests link the emulated backend, gpu_ops the real
// one.
//
//   OpCase{.op = "add", .shape = "(3, 7)", .dtype = dtype, .body = [=](OpRun& run) {
//     const ConstTensor a = run.random("a", dtype, {3, 7}), b = run.random("b", dtype, {3, 7});
//     add(run.ctx, run.output("y", dtype, {3, 7}, each()), a, b);
//   }}
//
// check_case() runs the body on a CPU, which is the oracle, on a GPU with a direct arena, in a
// planning run and with that plan, and with every operand one element off its alignment. It fails
// where
//   an output differs by more than its Close allows, or the oracle did not write all of it;
//   the two runs on the GPU differ in a bit;
//   a byte before or after an operand was written, or an input was changed.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "engine/ops/context.h"
#include "tests/support/compare.h"

namespace trireme::test {

// Tolerance of an output: the magnitude it is relative to, and the number of terms that its
// computation sums (tests/support/compare.h, between_computations).
struct Close {
  enum class Of { kExact, kElement, kRow, kTensor };
  Of of = Of::kExact;
  int64_t terms = 1;
  DType accumulate = DType::kF32;
  DType computed = DType::kF64;  // type that a float64 output is computed from
  double units = 0;              // relative error of a real GPU's units beyond these types
};
inline Close exact() { return {}; }  // bitwise equal
// Relative to the element's own magnitude; to the largest in its row (last dimension); to the
// largest in the tensor.
inline Close each(int64_t terms = 1) { return {.of = Close::Of::kElement, .terms = terms}; }
inline Close row(int64_t terms) { return {.of = Close::Of::kRow, .terms = terms}; }
inline Close whole(int64_t terms) { return {.of = Close::Of::kTensor, .terms = terms}; }

// Operands of one run of a case, by name. A second call with a name returns the same tensor with
// its current content. In a planning run tensors have shapes but no memory.
class OpRun {
 public:
  struct Options {
    bool misaligned = false;  // operands start one element after a multiple of 256 bytes
    bool wide = false;  // bfloat16 and float16 operands are float32 with the same (rounded) values
  };
  OpRun(Ctx& run_ctx, Options options) : ctx(run_ctx), options_(options) {}
  OpRun(const OpRun&) = delete;
  OpRun& operator=(const OpRun&) = delete;

  Ctx& ctx;

  // Inputs: values that depend on the name only. random: uniform in [low, high), rounded to dtype;
  // integers: uniform in [low, high), of an integer or float type.
  ConstTensor random(const std::string& name, DType dtype, const Shape& shape, double low = -1.0,
                     double high = 1.0);
  ConstTensor integers(const std::string& name, DType dtype, const Shape& shape, int64_t low,
                       int64_t high);
  ConstTensor values(const std::string& name, DType dtype, const Shape& shape,
                     const std::vector<double>& values);
  // Values from make(), which is called once.
  ConstTensor made(const std::string& name, DType dtype, const Shape& shape,
                   const std::function<std::vector<double>()>& make);
  // Filled with 0xFF bytes, NaN in every float type; the op must write all of it.
  Tensor output(const std::string& name, DType dtype, const Shape& shape, Close close);
  // Random content that the op changes fully or in part; compared like an output.
  Tensor updated(const std::string& name, DType dtype, const Shape& shape, Close close,
                 double low = -1.0, double high = 1.0);
  Tensor updated_values(const std::string& name, DType dtype, const Shape& shape, Close close,
                        const std::vector<double>& values);

  bool planning() const { return ctx.planning(); }

 private:
  friend class CaseRunner;
  enum class Role { kInput, kOutput, kUpdated };
  struct Operand {
    Role role = Role::kInput;
    Close close = {};
    Buffer memory = {};  // guard, data, guard
    Tensor view = {};
    std::vector<std::byte> initial = {};  // the bytes of `memory`
  };
  Tensor take(Role role, const std::string& name, DType dtype, const Shape& shape, Close close,
              const std::function<std::vector<double>()>& make);
  std::vector<std::byte> content(const Operand& operand) const;  // of memory, on the host
  // "" or the damage to guards and inputs.
  std::string damage() const;

  Options options_;
  std::map<std::string, Operand> operands_;
};

struct OpCase {
  std::string op = {};     // name of the function, as in its header
  std::string shape = {};  // description that distinguishes the op's cases
  DType dtype = DType::kF32;
  std::function<void(OpRun&)> body = {};
  double flops = 0, bytes = 0;  // of one call, for measured throughput
  bool deterministic = true;    // bitwise equal results in every run
  bool any_alignment = true;    // operands may have any address aligned to their element size
  bool wide_oracle = false;     // also compares 16-bit types with float32 on rounded operands
  bool large = false;           // for measurements on a real GPU only; no test runs it
};

// Text that GoogleTest prints for a parameter.
void PrintTo(const OpCase& c, std::ostream* out);

struct CaseReport {
  std::string failure = {};  // "": passed
  double max_error = 0;  // of the output that used most of its tolerance, relative to its magnitude
  double tolerance = 0;
  bool bitwise = true;
  int64_t launches = 0;  // on the GPU, by one run of the body
};

// before: called before each run on the GPU with its number, 0 for the first. Tests use it to
// change the emulator's block order.
CaseReport check_case(const OpCase& c, cuda::Context& gpu,
                      const std::function<void(int)>& before = {});

// Checks a large case, which a CPU cannot compute in time: two runs on the GPU are bitwise equal
// and close to a third run, computed in another way. `reference` names that way: attention by
// Trireme's kernels instead of cuDNN, or products of 16-bit operands in float32 where wide_oracle
// allows it; "none" where there is no other way.
struct LargeReport : CaseReport {
  std::string reference = {};
};
LargeReport check_large_case(const OpCase& c, cuda::Context& gpu);

// Seconds per run of the body on the GPU, over consecutive runs without synchronization.
double measure_case(const OpCase& c, cuda::Context& gpu);

}  // namespace trireme::test
