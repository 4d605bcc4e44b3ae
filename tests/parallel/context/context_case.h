// A micro-batch of documents, attended over by one rank in float64 and by several in any dtype.
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
  int64_t multiple = 1;
  ContextBalance balance = ContextBalance::kZigzag;
  ContextCommType type = ContextCommType::kP2P;

  int64_t tokens() const { return rows * length; }
  std::string describe() const;
};

// Each row is cut into documents of these lengths, the last one as long as needed.
ContextCase packed(int64_t rows, int64_t length, const std::vector<int64_t>& documents);

// Results for the tokens of the micro-batch without padding, in its order.
struct WholeResult {
  std::vector<double> out, dq, dk, dv;
};

AttentionArgs args_of(const ContextCase& c);
// Values stored in `dtype`: "q", "dout" (tokens, H, D), "k", "v" (tokens, Hkv, D).
std::vector<double> values_of(const ContextCase& c, const std::string& name, DType dtype);
std::vector<int64_t> global_rows_of(const ContextCase& c);

// The plain attention op over the whole rows, in float64 on the values that `dtype` stores.
WholeResult attend_alone(const ContextCase& c, DType dtype);

// One rank's part of a run: its operands, whose padding is NaN, and its results.
class ContextRank {
 public:
  ContextRank(const ContextCase& c, Communicator& cp, DType dtype);
  void forward(Ctx& ctx);
  void backward(Ctx& ctx);
  // Copies the results of context rank `rank`, this one, to their tokens' places; returns what
  // padding holds that is not zero, or "".
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

// Forward and backward on `ranks` thread ranks; inspect (may be empty) is called on each after
// them.
using Inspect = std::function<void(ContextRank&, Communicator& cp)>;
WholeResult attend_together(const ContextCase& c, int ranks, DType dtype,
                            const Inspect& inspect = {});

// Largest difference over the largest value, over all four results.
double worst_difference(const WholeResult& got, const WholeResult& want);

}  // namespace trireme::test
