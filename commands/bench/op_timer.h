// Timing of op calls, compared with the minimum for the machine: the bytes that a call must move at
// the measured bandwidth, or its multiply-adds at the measured peak.
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
  // Type whose peak limits the operations. On a CPU float32, in which ops other than products sum.
  DType sums_dtype;

  // Time of the bytes or operations at the ceiling, divided by the op's time.
  double share(const BenchCeiling& ceiling) const;
};

class OpTimer {
 public:
  OpTimer(Ctx& ctx, int samples, DType dtype) : ctx_(ctx), samples_(samples), dtype_(dtype) {}

  // bytes: minimum that the op must read and write; operations: twice its multiply-adds.
  void time(const std::string& op, const Shape& shape, double bytes, double operations,
            const std::function<void()>& call);

  Ctx& ctx() const { return ctx_; }
  DType dtype() const { return dtype_; }
  double width() const { return static_cast<double>(dtype_size(dtype_)); }  // bytes per element
  std::vector<BenchOpsResult> take() { return std::move(results_); }

 private:
  Ctx& ctx_;
  int samples_;
  DType dtype_;
  std::vector<BenchOpsResult> results_;
};

// Ops of a server's step. time_paged_attention(): one query per sequence, by context and batch; and
// prompts after a cached prefix. time_sampler(): the sampler, by filter and vocabulary, and other
// per-token work of request options on the host. cached: keys in the pool of the CPU's cases; the
// GPU's cases have typical server lengths.
void time_paged_attention(OpTimer& timer, int64_t cached);
void time_sampler(OpTimer& timer);

}  // namespace trireme
