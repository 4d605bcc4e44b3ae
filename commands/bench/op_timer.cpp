#include "commands/bench/op_timer.h"

#include <algorithm>

namespace trireme {

double BenchOpsResult::share(const BenchCeiling& ceiling) const {
  return std::max(bytes / (ceiling.moving_gbytes(bytes) * 1e9),
                  operations / (ceiling.gflops(sums_dtype) * 1e9)) /
         seconds;
}

void OpTimer::time(const std::string& op, const Shape& shape, double bytes, double operations,
                   const std::function<void()>& call) {
  const double seconds = median_seconds(ctx_, samples_, 0.03, call);
  results_.push_back({op, shape.str(), dtype_, seconds, bytes, operations,
                      ctx_.gpu != nullptr ? dtype_ : DType::kF32});
}

}  // namespace trireme
