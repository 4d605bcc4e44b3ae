#include "engine/ops/compression/block_code.h"
#include "engine/ops/compression/orthonormal_rows.h"
#include "engine/ops/compression/sparse_code.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  int64_t rows, columns, block;
  bool large = false;
};
constexpr int64_t kOddColumns = 301;  // 16-bit types have cases of this size only
// No rows, less than a block, partial blocks of every kind, several tiles of a thread block.
const std::vector<Size> kSizes = {{0, 8, 8},       {1, 2, 8},
                                  {3, 130, 64},    {2, kOddColumns, 40},
                                  {1, 1500, 1024}, {8192, 4096, 1024, true}};

OpCase make(const char* op, const Size& s, const std::string& more, DType dtype,
            double bytes_an_element, std::function<void(OpRun&)> body) {
  return {.op = op,
          .shape = concat("(", s.rows, ", ", s.columns, ") by ", s.block, more),
          .dtype = dtype,
          .body = std::move(body),
          .bytes = bytes_an_element * static_cast<double>(s.rows * s.columns),
          .large = s.large};
}

void add_block_codes(std::vector<OpCase>& cases, const Size& s, DType dtype, int bits) {
  const BlockCode code{bits, s.block};
  const Shape shape{s.rows, s.columns}, scales{s.rows, ceil_div(s.columns, s.block)};
  const Shape bytes{s.rows, block_code_bytes(code, s.columns)};
  const auto element = static_cast<double>(dtype_size(dtype)), coded = bits / 8.0;
  const std::string name = concat(", ", bits, " bits");
  for (bool feedback : {false, true})
    cases.push_back(make("encode_blocks", s, name + (feedback ? ", residual" : ""), dtype,
                         element * (feedback ? 3 : 1) + coded, [=](OpRun& run) {
                           encode_blocks(
                               run.ctx, code, run.output("scale", DType::kF32, scales, exact()),
                               run.output("codes", DType::kU8, bytes, exact()),
                               run.random("x", dtype, shape, -1.0, 0.7),
                               feedback ? run.updated("residual", sum_dtype(dtype), shape, exact())
                                        : Tensor());
                         }));
  // Blocks of zeros, and of numbers whose scale is not a normal one.
  cases.push_back(make("encode_blocks", s, name + ", small", dtype, element, [=](OpRun& run) {
    const ConstTensor x = run.made("x", dtype, shape, [&] {
      std::vector<double> small(static_cast<size_t>(shape.numel()));
      for (size_t i = 0; i < small.size(); ++i)
        small[i] = i % 90 < 30 ? 0.0 : i % 90 < 60 ? 1e-39 : -0.25;
      return small;
    });
    encode_blocks(run.ctx, code, run.output("scale", DType::kF32, scales, exact()),
                  run.output("codes", DType::kU8, bytes, exact()), x, {});
  }));
  for (bool add : {false, true})
    cases.push_back(make("decode_blocks", s, name + (add ? ", add" : ""), dtype,
                         element * (add ? 2 : 1) + coded, [=](OpRun& run) {
                           decode_blocks(run.ctx, code,
                                         add ? run.updated("y", dtype, shape, exact())
                                             : run.output("y", dtype, shape, exact()),
                                         run.random("scale", DType::kF32, scales, 0.01, 0.1),
                                         run.integers("codes", DType::kU8, bytes, 0, 256), add);
                         }));
}

void add_sparse_codes(std::vector<OpCase>& cases, const Size& s, DType dtype, double ratio) {
  const SparseCode code{ratio, s.block};
  const Shape shape{s.rows, s.columns}, kept{s.rows, kept_in_row(code, s.columns)};
  const auto element = static_cast<double>(dtype_size(dtype));
  const DType sum = sum_dtype(dtype);
  const std::string name = concat(", ratio ", ratio);
  // Integers: many elements are equal.
  cases.push_back(make("select_largest", s, name, dtype, 2 * element, [=](OpRun& run) {
    select_largest(run.ctx, code, run.output("index", DType::kU16, kept, exact()),
                   run.integers("x", dtype, shape, -30, 30),
                   run.updated("residual", sum, shape, exact()));
  }));
  cases.push_back(make("select_largest", s, name + ", equal", dtype, element, [=](OpRun& run) {
    select_largest(run.ctx, code, run.output("index", DType::kU16, kept, exact()),
                   run.integers("x", dtype, shape, -3, 3), {});
  }));
  for (bool feedback : {false, true})
    cases.push_back(make("gather_selected", s, name + (feedback ? ", residual" : ""), dtype,
                         3 * element, [=](OpRun& run) {
                           const Tensor index = run.output("index", DType::kU16, kept, exact());
                           const ConstTensor x = run.random("x", dtype, shape);
                           select_largest(run.ctx, code, index, x, {});
                           gather_selected(
                               run.ctx, code, run.output("values", sum, kept, exact()), index, x,
                               feedback ? run.updated("residual", sum, shape, exact()) : Tensor());
                         }));
  for (bool add : {false, true})
    cases.push_back(
        make("scatter_selected", s, name + (add ? ", add" : ""), dtype, element, [=](OpRun& run) {
          const Tensor index = run.output("index", DType::kU16, kept, exact());
          select_largest(run.ctx, code, index, run.random("x", dtype, shape), {});
          scatter_selected(run.ctx, code,
                           add ? run.updated("y", dtype, shape, exact())
                               : run.output("y", dtype, shape, exact()),
                           run.random("values", sum, kept), index, add);
        }));
}

void add_random(std::vector<OpCase>& cases, const Size& s) {
  const SparseCode code{0.2, s.block};
  const Shape kept{s.rows, kept_in_row(code, s.columns)};
  cases.push_back(make("select_random", s, "", DType::kF32, 0, [=](OpRun& run) {
    select_random(run.ctx, code, run.output("index", DType::kU16, kept, exact()), s.columns,
                  {.key = {7, 11}, .first = 3, .stride = 200});
  }));
}

}  // namespace

std::vector<OpCase> compression_cases() {
  std::vector<OpCase> cases;
  for (const Size& s : kSizes) {
    for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      if (dtype_size(dtype) == 2 && s.columns != kOddColumns && !s.large) continue;
      for (int bits : {8, 4, 1}) add_block_codes(cases, s, dtype, bits);
      for (double ratio : {0.01, 1.0}) add_sparse_codes(cases, s, dtype, ratio);
    }
    add_random(cases, s);
  }
  for (DType dtype : {DType::kF64, DType::kF32})
    for (const Shape& shape : {Shape{1, 1}, Shape{6, 2}, Shape{4, 33}, Shape{8, 3000}}) {
      cases.push_back({.op = "orthonormal_rows",
                       .shape = concat(shape),
                       .dtype = dtype,
                       .body = [=](OpRun& run) {
                         orthonormal_rows(run.ctx, run.updated("y", dtype, shape, whole(3000)));
                       }});
      cases.push_back({.op = "copy_nonzero_rows",
                       .shape = concat(shape),
                       .dtype = dtype,
                       .body = [=](OpRun& run) {
                         copy_nonzero_rows(run.ctx, run.updated("y", dtype, shape, exact()),
                                           run.integers("x", dtype, shape, 0, 2));
                       }});
    }
  return cases;
}

}  // namespace trireme::test
