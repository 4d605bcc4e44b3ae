#include "engine/ops/moe/grouped_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace trireme {
namespace {

constexpr std::array<int64_t, 4> kTiles{1024, 256, 64, 16};
constexpr int64_t kSmallest = kTiles.back();

struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Calls body(rows) for every tile of [begin, end): whole tiles, and a shorter one at the end.
template <class Body>
void for_tiles(int64_t begin, int64_t end, Body&& body) {
  for (int64_t tile : kTiles)
    for (; end - begin >= tile; begin += tile) body(Rows{begin, begin + tile});
  if (begin < end) body(Rows{begin, end});
}

void check_offsets(const char* op, const ConstTensor& x, const ConstTensor& y, size_t experts,
                   std::span<const int64_t> offsets, bool planning) {
  TRIREME_CHECK(x.rank() == 2 && y.rank() == 2 && x.size(0) == y.size(0), op, ": x is ", x.shape(),
                ", y ", y.shape(), ", expected (R, K) and (R, N)");
  check_contiguous(op, "x", x);
  check_contiguous(op, "y", y);
  if (!planning) check_expert_offsets(op, offsets, experts, x.size(0));
}

// A tile's rows of t; a short tile's are copied to `scratch` (kSmallest, columns), padded with
// zeros.
ConstTensor whole_tile(const ConstTensor& t, const Rows& rows, const Tensor& scratch) {
  if (rows.size() >= kSmallest) return t.slice(0, rows.begin, rows.end);
  const ConstTensor part = t.slice(0, rows.begin, rows.end);
  std::memcpy(scratch.raw(), part.raw(), static_cast<size_t>(part.bytes()));
  std::memset(static_cast<std::byte*>(scratch.raw()) + part.bytes(), 0,
              static_cast<size_t>(scratch.bytes() - part.bytes()));
  return scratch;
}

// On a GPU: whole ranges.
void multiply_ranges(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                     std::span<const Tensor> weights, Transpose transpose,
                     std::span<const int64_t> offsets) {
  if (ctx.planning()) return;  // allocates no memory
  for (size_t e = 0; e < weights.size(); ++e)
    gemm(ctx, y.slice(0, offsets[e], offsets[e + 1]), x.slice(0, offsets[e], offsets[e + 1]),
         Transpose::kNo, weights[e], transpose, {.varying_rows = true});
}

void weight_gradients_of_ranges(Ctx& ctx, std::span<const GroupedGradient> gradients,
                                const ConstTensor& dy, const ConstTensor& x,
                                std::span<const int64_t> offsets) {
  if (ctx.planning()) return;
  for (size_t e = 0; e < gradients.size(); ++e)  // without rows: K = 0
    gemm(ctx, gradients[e].dw, dy.slice(0, offsets[e], offsets[e + 1]), Transpose::kYes,
         x.slice(0, offsets[e], offsets[e + 1]), Transpose::kNo,
         {.accumulate = gradients[e].accumulate, .varying_rows = true});
}

// y = x op(w) for both directions.
void multiply_rows(Ctx& ctx, const char* op, const Tensor& y, const ConstTensor& x,
                   std::span<const Tensor> weights, Transpose transpose,
                   std::span<const int64_t> offsets) {
  check_offsets(op, x, y, weights.size(), offsets, ctx.planning());
  if (weights.empty()) return;
  const TimeScope timed(ctx.profile, TimeCategory::kGemm);
  if (ctx.gpu != nullptr) return multiply_ranges(ctx, y, x, weights, transpose, offsets);
  const Arena::Region region(ctx.arena, "grouped_gemm");
  const Activation x_tile = ctx.allocate("grouped_gemm.x", x.dtype(), {kSmallest, x.size(1)});
  const Activation y_tile = ctx.allocate("grouped_gemm.y", y.dtype(), {kSmallest, y.size(1)});
  if (ctx.planning()) {  // each product once, for its scratch
    for (int64_t tile : kTiles)
      if (tile <= x.size(0))
        gemm(ctx, y.slice(0, 0, tile), x.slice(0, 0, tile), Transpose::kNo, weights[0], transpose);
    gemm(ctx, y_tile, x_tile, Transpose::kNo, weights[0], transpose);
    return;
  }
  for (size_t e = 0; e < weights.size(); ++e)
    for_tiles(offsets[e], offsets[e + 1], [&](const Rows& rows) {
      const bool whole = rows.size() >= kSmallest;
      const Tensor out = y.slice(0, rows.begin, rows.end);
      gemm(ctx, whole ? out : *y_tile, whole_tile(x, rows, x_tile), Transpose::kNo, weights[e],
           transpose);
      if (!whole) std::memcpy(out.raw(), y_tile->raw(), static_cast<size_t>(out.bytes()));
    });
}

}  // namespace

void check_expert_offsets(const char* op, std::span<const int64_t> offsets, size_t experts,
                          int64_t rows) {
  TRIREME_CHECK(offsets.size() == experts + 1 && offsets.front() == 0 &&
                    std::ranges::is_sorted(offsets) && offsets.back() <= rows,
                op, ": ", offsets.size(), " offsets up to ", offsets.empty() ? -1 : offsets.back(),
                " for ", experts, " experts and ", rows, " rows");
}

void grouped_linear_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                            std::span<const Tensor> weights, std::span<const int64_t> offsets) {
  multiply_rows(ctx, "grouped_linear_forward", y, x, weights, Transpose::kYes, offsets);
}

void grouped_linear_backward_input(Ctx& ctx, const Tensor& dx, const ConstTensor& dy,
                                   std::span<const Tensor> weights,
                                   std::span<const int64_t> offsets) {
  multiply_rows(ctx, "grouped_linear_backward_input", dx, dy, weights, Transpose::kNo, offsets);
}

void grouped_linear_backward_weight(Ctx& ctx, std::span<const GroupedGradient> gradients,
                                    const ConstTensor& dy, const ConstTensor& x,
                                    std::span<const int64_t> offsets) {
  check_offsets("grouped_linear_backward_weight", x, dy, gradients.size(), offsets, ctx.planning());
  if (gradients.empty()) return;
  const TimeScope timed(ctx.profile, TimeCategory::kGemm);
  if (ctx.gpu != nullptr) return weight_gradients_of_ranges(ctx, gradients, dy, x, offsets);
  const Arena::Region region(ctx.arena, "grouped_gemm");
  const Activation x_tile = ctx.allocate("grouped_gemm.x", x.dtype(), {kSmallest, x.size(1)});
  const Activation dy_tile = ctx.allocate("grouped_gemm.dy", dy.dtype(), {kSmallest, dy.size(1)});
  const auto product = [&](const Tensor& dw, const ConstTensor& dy_rows, const ConstTensor& x_rows,
                           bool accumulate) {
    gemm(ctx, dw, dy_rows, Transpose::kYes, x_rows, Transpose::kNo, {.accumulate = accumulate});
  };
  if (ctx.planning()) {
    for (bool accumulate : {false, true}) {
      for (int64_t tile : kTiles)
        if (tile <= x.size(0))
          product(gradients[0].dw, dy.slice(0, 0, tile), x.slice(0, 0, tile), accumulate);
      product(gradients[0].dw, dy_tile, x_tile, accumulate);
    }
    return;
  }
  for (size_t e = 0; e < gradients.size(); ++e) {
    bool accumulate = gradients[e].accumulate;
    const Tensor& dw = gradients[e].dw;
    if (offsets[e] == offsets[e + 1] && !accumulate)
      std::memset(dw.raw(), 0, static_cast<size_t>(dw.bytes()));
    for_tiles(offsets[e], offsets[e + 1], [&](const Rows& rows) {
      product(dw, whole_tile(dy, rows, dy_tile), whole_tile(x, rows, x_tile), accumulate);
      accumulate = true;
    });
  }
}

}  // namespace trireme
