// Cases of transfer.h, sum_rows.h and moe/token_marks.h.
#include "engine/ops/moe/token_marks.h"
#include "engine/ops/rows/sum_rows.h"
#include "engine/ops/rows/transfer.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

OpCase sum_case(DType dtype, int64_t rows, int64_t columns, int terms, bool in_place) {
  return {
      .op = "sum_rows",
      .shape = concat(terms, " of (", rows, ", ", columns, ")", in_place ? ", in place" : ""),
      .dtype = dtype,
      .body = [=](OpRun& run) {
        const Shape shape{rows, columns};
        const Close close = row(terms);
        std::vector<ConstTensor> in;
        const Tensor y =
            in_place ? run.updated("y", dtype, shape, close) : run.output("y", dtype, shape, close);
        if (in_place) in.emplace_back(y);
        while (std::ssize(in) < terms) {
          // Rows of a wider matrix, with its stride.
          const ConstTensor wide = run.random(concat("x", in.size()), dtype, {rows, columns + 3});
          in.push_back(wide.slice(1, 1, columns + 1));
        }
        sum_rows(run.ctx, y, in);
      }};
}

OpCase copy_case(int64_t n) {
  return {.op = "transfer",
          .shape = concat("(", n, ")"),
          .dtype = DType::kI32,
          .body = [=](OpRun& run) {
            transfer(run.ctx, run.output("y", DType::kI32, {n}, exact()),
                     run.integers("x", DType::kI32, {n}, 0, 1 << 20));
          }};
}

OpCase fill_case(int64_t n) {
  return {.op = "fill_bytes",
          .shape = concat("(", n, ")"),
          .dtype = DType::kI64,
          .body = [=](OpRun& run) {
            fill_bytes(run.ctx,
                       run.updated_values("y", DType::kI64, {n}, exact(),
                                          std::vector<double>(static_cast<size_t>(n), 3)),
                       0xff);
          }};
}

// Rows of two sequences of `length`, with padding between and after them.
OpCase marks_case(int64_t tokens, int64_t begin, int64_t count, int64_t length) {
  return {.op = "mark_tokens",
          .shape = concat(count, " of ", tokens, " from ", begin, ", sequences of ", length),
          .dtype = DType::kI32,
          .body = [=](OpRun& run) {
            std::vector<double> rows;
            for (int64_t t = 0; t < tokens; ++t)
              rows.push_back(t % 5 == 4 ? -1.0 : static_cast<double>(3 * 16 + t));
            mark_tokens(
                run.ctx, run.output("valid", DType::kU8, {count}, exact()),
                run.output("segments", DType::kI32, {count}, exact()),
                tokens > 0 ? run.values("rows", DType::kI64, {tokens}, rows) : ConstTensor(), begin,
                length);
          }};
}

}  // namespace

std::vector<OpCase> transfer_cases() {
  std::vector<OpCase> all;
  for (const DType dtype : kFloats)
    for (const bool in_place : {false, true}) {
      all.push_back(sum_case(dtype, 1, 1, 2, in_place));
      all.push_back(sum_case(dtype, 7, 33, 3, in_place));
      all.push_back(sum_case(dtype, 0, 5, 2, in_place));
      all.push_back(sum_case(dtype, 130, 64, 8, in_place));
      for (const int terms : {64, 65, 150}) all.push_back(sum_case(dtype, 3, 37, terms, in_place));
    }
  for (const int64_t n : {0, 1, 1000}) {
    all.push_back(copy_case(n));
    all.push_back(fill_case(n));
  }
  all.push_back(marks_case(32, 0, 32, 16));
  all.push_back(marks_case(40, 7, 20, 16));
  all.push_back(marks_case(3000, 1, 2999, 100));
  all.push_back(marks_case(9, 0, 9, 0));
  all.push_back(marks_case(0, 0, 5, 16));  // inference: no rows
  return all;
}

}  // namespace trireme::test
