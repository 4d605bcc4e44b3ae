#include "engine/ops/moe/grouped_bias.h"

#include "engine/ops/moe/grouped_gemm.h"
#include "engine/ops/rows/activation.h"

namespace trireme {
namespace {

void check_ranges(const char* op, const ConstTensor& y, size_t experts,
                  std::span<const int64_t> offsets, bool planning) {
  TRIREME_CHECK(y.rank() == 2, op, ": y is ", y.shape(), ", expected (R, N)");
  check_contiguous(op, "rows", y);
  if (!planning) check_expert_offsets(op, offsets, experts, y.size(0));
}

}  // namespace

void grouped_bias_forward(Ctx& ctx, const Tensor& y, std::span<const Tensor> biases,
                          std::span<const int64_t> offsets) {
  check_ranges("grouped_bias_forward", y, biases.size(), offsets, ctx.planning());
  if (ctx.planning()) return;
  for (size_t e = 0; e < biases.size(); ++e)
    if (offsets[e] < offsets[e + 1])
      add_bias(ctx, y.slice(0, offsets[e], offsets[e + 1]), biases[e]);
}

void grouped_bias_backward(Ctx& ctx, std::span<const GroupedBiasGradient> gradients,
                           const ConstTensor& dy, std::span<const int64_t> offsets) {
  check_ranges("grouped_bias_backward", dy, gradients.size(), offsets, ctx.planning());
  if (gradients.empty()) return;
  const Arena::Region region(ctx.arena, "grouped_bias");
  if (ctx.planning())  // one expert with all rows needs the most memory
    return bias_backward(ctx, gradients.front().db, dy, false);
  for (size_t e = 0; e < gradients.size(); ++e)
    if (offsets[e] < offsets[e + 1] || !gradients[e].accumulate)
      bias_backward(ctx, gradients[e].db, dy.slice(0, offsets[e], offsets[e + 1]),
                    gradients[e].accumulate);
}

}  // namespace trireme
