#include "engine/ops/loss/cross_entropy.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  int64_t rows, columns, valid;
  int64_t padding = 0;  // columns between the end of a row and the next row
  bool large = false;
};
// No rows, one logit, padding of the vocabulary and of the rows, more logits than threads.
const std::vector<Size> kSizes = {
    {0, 8, 8},       {1, 1, 1},          {3, 7, 5, 2},   {5, 264, 260},
    {6, 5003, 5000}, {4, 6144, 6144, 8}, {5, 17, 17, 1}, {512, 131072, 131072, 0, true}};

std::string describe(const Size& s) {
  return concat("(", s.rows, ", ", s.columns, ") valid ", s.valid, " stride ",
                s.columns + s.padding);
}

// Every fourth token has no target; the first token has the last column.
std::vector<double> targets(int64_t rows, int64_t valid, int64_t first = 0) {
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r)
    out.push_back(
        static_cast<double>(r % 4 == 3 ? kIgnoredTarget : first + (r * 7919 + valid - 1) % valid));
  return out;
}

// A loss is the difference of a logit and a logarithm, with the magnitude of the largest of all.
Close of_losses(DType dtype, int64_t terms) {
  return {.of = Close::Of::kTensor, .terms = terms, .accumulate = dtype, .computed = dtype};
}

enum class Gradient { kNone, kBeside, kInPlace };

OpCase loss_case(const Size& s, DType dtype, DType d_dtype, Gradient gradient) {
  const auto body = [=](OpRun& run) {
    const Shape shape{s.rows, s.columns + s.padding};
    const Close close = row(s.valid);
    const auto part = [&](const auto& t) { return t.slice(1, 0, s.columns); };
    const Tensor loss_sum = run.updated("loss_sum", DType::kF64, {1}, of_losses(dtype, s.valid));
    const ConstTensor labels =
        run.values("targets", DType::kI32, {s.rows}, targets(s.rows, s.valid));
    const ConstTensor scale = run.values("scale", DType::kF64, {1}, {0.375});
    if (gradient == Gradient::kNone)
      return softmax_cross_entropy(run.ctx, loss_sum, {}, {},
                                   part(run.random("logits", dtype, shape, -4.0, 4.0)), labels,
                                   scale, s.valid);
    const Tensor losses = run.output("token_loss", dtype, {s.rows}, of_losses(dtype, s.valid));
    if (gradient == Gradient::kInPlace) {
      const Tensor both = part(run.updated("logits", dtype, shape, close, -4.0, 4.0));
      return softmax_cross_entropy(run.ctx, loss_sum, losses, both, both, labels, scale, s.valid);
    }
    const Tensor d = part(run.updated("d_logits", d_dtype, shape, close));
    softmax_cross_entropy(run.ctx, loss_sum, losses, d,
                          part(run.random("logits", dtype, shape, -4.0, 4.0)), labels, scale,
                          s.valid);
  };
  const auto n = static_cast<double>(s.rows * s.columns);
  const char* where = gradient == Gradient::kNone      ? " loss only"
                      : gradient == Gradient::kInPlace ? " in place"
                                                       : "";
  return {.op = "softmax_cross_entropy",
          .shape = concat(describe(s), " gradient ", d_dtype, where),
          .dtype = dtype,
          .body = body,
          .bytes = n * static_cast<double>(2 * dtype_size(dtype) + dtype_size(d_dtype)),
          .large = s.large};
}

OpCase statistics_case(const Size& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    Close close = row(s.columns);
    close.computed = dtype;
    const Tensor statistics = run.output("statistics", DType::kF64, {s.rows, 3}, close);
    const ConstTensor logits =
        run.random("logits", dtype, {s.rows, s.columns + s.padding}, -4.0, 4.0);
    // Some targets are in other shards.
    const ConstTensor labels =
        run.values("targets", DType::kI32, {s.rows}, targets(s.rows, 2 * s.columns));
    softmax_statistics(run.ctx, statistics, logits.slice(1, 0, s.columns), labels,
                       {.first = s.columns, .total = 3 * s.columns});
  };
  return {.op = "softmax_statistics",
          .shape = describe(s),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>(s.rows * s.columns * dtype_size(dtype)),
          .large = s.large};
}

OpCase merge_case(int64_t parts, int64_t rows, bool in_place) {
  const auto body = [=](OpRun& run) {
    std::vector<double> values;
    for (int64_t i = 0; i < parts * rows; ++i) {
      values.push_back(static_cast<double>(i * 37 % 11) - 5.0);
      values.push_back(1.0 + static_cast<double>(i * 53 % 97));
      values.push_back(i / rows == i % parts ? 0.25 * static_cast<double>(i % 7) : -INFINITY);
    }
    const Shape shape{parts, rows, 3};
    if (in_place) {
      const Tensor all = run.updated_values("parts", DType::kF64, shape, whole(parts), values);
      return merge_softmax_statistics(run.ctx, all.slice(0, 0, 1).reshape({rows, 3}), all);
    }
    merge_softmax_statistics(run.ctx, run.output("merged", DType::kF64, {rows, 3}, whole(parts)),
                             run.values("parts", DType::kF64, shape, values));
  };
  return {.op = "merge_softmax_statistics",
          .shape = concat(parts, " parts of ", rows, in_place ? " in place" : ""),
          .dtype = DType::kF64,
          .body = body};
}

OpCase partial_case(const Size& s, DType dtype, DType d_dtype) {
  const auto body = [=](OpRun& run) {
    const Shape shape{s.rows, s.columns + s.padding};
    std::vector<double> known;
    for (int64_t r = 0; r < s.rows; ++r)
      known.insert(known.end(), {4.0, 20.0 + static_cast<double>(r), 1.0});
    const Tensor loss_sum = run.updated("loss_sum", DType::kF64, {1}, of_losses(dtype, 1));
    const Tensor losses = run.output("token_loss", dtype, {s.rows}, of_losses(dtype, 1));
    const Tensor d = run.updated("d_logits", d_dtype, shape, row(1));
    partial_cross_entropy(
        run.ctx, loss_sum, losses, d.slice(1, 0, s.columns),
        run.random("logits", dtype, shape, -4.0, 4.0).slice(1, 0, s.columns),
        run.values("targets", DType::kI32, {s.rows}, targets(s.rows, 2 * s.columns)),
        run.values("scale", DType::kF64, {1}, {0.375}),
        run.values("merged", DType::kF64, {s.rows, 3}, known),
        {.first = s.columns, .total = 3 * s.columns});
  };
  return {.op = "partial_cross_entropy",
          .shape = concat(describe(s), " gradient ", d_dtype),
          .dtype = dtype,
          .body = body,
          .large = s.large};
}

}  // namespace

std::vector<OpCase> cross_entropy_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32})
    for (const Size& s : kSizes) {
      cases.push_back(loss_case(s, dtype, dtype, Gradient::kNone));
      cases.push_back(loss_case(s, dtype, dtype, Gradient::kInPlace));
      cases.push_back(statistics_case(s, dtype));
      for (DType d : {dtype, DType::kBF16, DType::kF16}) {
        if (d != dtype && dtype == DType::kF64) continue;
        cases.push_back(loss_case(s, dtype, d, Gradient::kBeside));
        cases.push_back(partial_case(s, dtype, d));
      }
    }
  for (bool in_place : {false, true}) {
    cases.push_back(merge_case(1, 3, in_place));
    cases.push_back(merge_case(3, 300, in_place));
  }
  return cases;
}

}  // namespace trireme::test
