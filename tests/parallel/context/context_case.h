// Micro-batch of documents: attention by one rank in float64 and by several ranks in any dtype.
#pragma once

#include <functional>

#include "parallel/comm/world.h"
#include "parallel/context/context_attention.h"
#include "tests/support/compare.h"

namespace trireme::test {

struct ContextCase {
  int64_t rows = 1, length = 0;
  std::vector<int32_t> cu;  // documents; filled by packed()
  int64_t heads = 4, kv_heads = 2, width = 8;
  double dropout = 0;
  int64_t window = 0;
  double soft_cap = 0;
  int64_t multiple = 1;
  ContextBalance balance = ContextBalance::kZigzag;
  ContextCommType type = ContextCommType::kP2P;

  int64_t tokens() const { return rows * length; }
  std::string describe() const;
};

// Cuts each row into documents of these lengths; the last length repeats as needed.
ContextCase packed(int64_t rows, int64_t length, const std::vector<int64_t>& documents);

// Results for the tokens of the micro-batch without padding, in their order.
struct WholeResult {
  std::vector<double> out, dq, dk, dv;
};

AttentionArgs args_of(const ContextCase& c);
// Values stored in `dtype`: "q", "dout" (tokens, H, D), "k", "v" (tokens, Hkv, D).
std::vector<double> values_of(const ContextCase& c, const std::string& name, DType dtype);
std::vector<int64_t> global_rows_of(const ContextCase& c);

// Plain attention op over the whole rows, in float64, on the values rounded to `dtype`.
WholeResult attend_alone(const ContextCase& c, DType dtype);

// One rank's part of a run: its operands, whose padding is NaN, and its results.
class ContextRank {
 public:
  ContextRank(const ContextCase& c, Communicator& cp, DType dtype);
  void forward(Ctx& ctx);
  void backward(Ctx& ctx);
  // Copies the results of context rank `rank`, this one, to the positions of their tokens. Returns
  // the values of padding that are not zero, or "".
  std::string collect(WholeResult& whole, int rank) const;
  const ContextAttention& attention() const { return attention_; }
  const ContextPlan& plan() const { return plan_; }

  TestTensor q, k, v, dout, out, dq, dk, dv;

 private:
  const ContextCase& case_;
  ContextAttention attention_;
  ContextLayout layout_;
  ContextPlan plan_;
  ContextAttention::Saved saved_;
};

// Forward and backward on `ranks` thread ranks. inspect (may be empty): called on each rank
// afterwards.
using Inspect = std::function<void(ContextRank&, Communicator& cp)>;
WholeResult attend_together(const ContextCase& c, int ranks, DType dtype,
                            const Inspect& inspect = {});

// Largest difference relative to the largest value, over all four results.
double worst_difference(const WholeResult& got, const WholeResult& want);

}  // namespace trireme::test
