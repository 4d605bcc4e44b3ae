// What the bench commands share: operands, planned calls, timing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/ops/context.h"
#include "engine/ops/peak.h"

namespace CLI {
class App;
}

namespace trireme {

// What the benches of single calls are told.
struct BenchOptions {
  std::string dtype = "all";
  int threads = 0;  // 0: all cores
  int samples = 5;
  bool json = false;
  std::vector<DType> dtypes() const;  // those that `dtype` names
};
void add_bench_options(CLI::App& app, BenchOptions& options);

// Owns operands whose values are uniform in [-0.5, 0.5): denormal numbers or NaN would change speed.
class Operands {
 public:
  Tensor make(DType dtype, const Shape& shape);  // float types
  Tensor zeros(DType dtype, const Shape& shape);
  Tensor ids(const Shape& shape, int64_t below);  // int32, scattered over [0, below)

 private:
  std::vector<Buffer> buffers_;
};

// Seconds of one call: the median of `samples` averages, each over as many calls as fill
// `sample_seconds`. Scratch is planned as in a training step; the first call does not count.
double median_seconds(Ctx& ctx, int samples, double sample_seconds,
                      const std::function<void()>& call);

// Pins the team of `threads` (0: all cores) and measures the peak.
MachinePeak prepare_bench(int threads);
std::string peak_line(const MachinePeak& peak);  // what it ran on and the peaks

}  // namespace trireme
