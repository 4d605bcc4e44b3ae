// Times calls of ops against the least that the machine needs for them: the bytes that a call must
// move at the measured bandwidth, or its multiply-adds at the measured peak.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands/bench/bench_support.h"

namespace trireme {

struct BenchOpsResult {
  std::string op, shape;
  DType dtype;
  double seconds, bytes, operations;
  // Type whose peak the operations are related to: a CPU's ops other than products sum in float32.
  DType sums_dtype;

  // The time that the bytes or the operations need at the ceiling, over the time the op took.
  double share(const BenchCeiling& ceiling) const;
};

class OpTimer {
 public:
  OpTimer(Ctx& ctx, int samples, DType dtype) : ctx_(ctx), samples_(samples), dtype_(dtype) {}

  // bytes: what the op cannot avoid to read and write; operations: its multiply-adds, twice.
  void time(const std::string& op, const Shape& shape, double bytes, double operations,
            const std::function<void()>& call);

  Ctx& ctx() const { return ctx_; }
  DType dtype() const { return dtype_; }
  double width() const { return static_cast<double>(dtype_size(dtype_)); }  // bytes of an element
  std::vector<BenchOpsResult> take() { return std::move(results_); }

 private:
  Ctx& ctx_;
  int samples_;
  DType dtype_;
  std::vector<BenchOpsResult> results_;
};

// The ops of a server's step: paged attention of one query a sequence, by context and batch; of
// prompts behind a cache; the sampler, by filter and vocabulary; what else a request can ask for
// that is done for each of its tokens, on the host. cached: keys in the pool of the CPU's cases; a
// GPU's are of the lengths that servers have.
void time_paged_attention(OpTimer& timer, int64_t cached);
void time_sampler(OpTimer& timer);

}  // namespace trireme
