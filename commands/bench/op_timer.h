// Timing of op calls, compared with the floor of the machine. The floor is the time of the bytes
// that a call must move at the measured bandwidth, or of its multiply-adds at the measured peak,
// whichever is longer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands/bench/bench_support.h"

namespace trireme {

struct BenchOpsResult {
  std::string op, shape;
  DType dtype;
  double seconds, bytes, operations;  // of one call, as for OpTimer::time()
  // Type whose peak limits the operations. On a CPU float32, since ops other than matrix products
  // sum in float32.
  DType sums_dtype;

  // Floor divided by `seconds`: 1 is as fast as possible.
  double share(const BenchCeiling& ceiling) const;
};

class OpTimer {
 public:
  OpTimer(Ctx& ctx, int samples, DType dtype) : ctx_(ctx), samples_(samples), dtype_(dtype) {}

  // Times `call`. bytes: minimum bytes that the op reads and writes. operations: twice the number
  // of its multiply-adds.
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

// Paged attention of a server's step: decoding (one query per sequence) by context length and batch
// size, and a prompt chunk after a cached prefix. cached: total keys of each case. On a GPU, a
// `cached` of 65536 or more selects fixed cases with typical lengths of a server instead.
void time_paged_attention(OpTimer& timer, int64_t cached);
// Sampler of a server's step. On a GPU: by filter and number of rows. On a CPU: by filter and
// vocabulary size, and the per-token work of other request options. Logits are float32: on a CPU a
// timer of another dtype times nothing.
void time_sampler(OpTimer& timer);
// Codes of float32 gradients for slow links; a timer of another dtype times nothing.
void time_compression(OpTimer& timer);

}  // namespace trireme
