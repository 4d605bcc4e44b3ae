// Block-quantized weights: values of the bytes, products against float64 within the bound of the
// header, and bits of a row of y that do not depend on the other rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/ops/quantized/quantized_weight.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_quantized_weight {
namespace {

// Matrix of blocks with random scales and codes, and its values, computed here.
struct QuantBlocks {
  QuantBlocks(BlockFormat format, int64_t rows, int64_t columns, const std::string& name)
      : bytes(DType::kU8, {block_matrix_bytes(format, rows, columns) + 32}),
        matrix{format, rows, columns, aligned()},
        values(static_cast<size_t>(rows * columns)) {
    const bool four = format == BlockFormat::kQ4_0;
    const int64_t blocks = (columns + 31) / 32;
    const RandomKey key{3, stream_id(name)};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t b = 0; b < blocks; ++b) {
        std::byte file[34] = {};
        const auto draw = [&](int64_t i) {
          return philox_word(key, static_cast<uint64_t>((r * blocks + b) * 40 + i));
        };
        const f16 scale((b % 3 == 0 ? -1.0f : 1.0f) * static_cast<float>(draw(39) % 1000 + 1) *
                        1e-4f);
        std::memcpy(file, &scale, 2);
        for (int64_t i = 0; i < 32; ++i) {
          const bool inside = b * 32 + i < columns;
          int q = inside ? static_cast<int>(draw(i) % (four ? 16 : 255)) : (four ? 8 : 127);
          q -= four ? 8 : 127;
          if (four)
            file[2 + i % 16] |= static_cast<std::byte>((q + 8) << (i / 16 * 4));
          else
            file[2 + i] = static_cast<std::byte>(q & 255);
          if (inside)
            values[static_cast<size_t>(r * columns + b * 32 + i)] =
                static_cast<double>(static_cast<float>(scale)) * q;
        }
        store_block(matrix, aligned(), r, b, file);
      }
  }
  Tensor aligned() const {
    const auto address = reinterpret_cast<uintptr_t>(bytes->raw());
    const auto skip = static_cast<int64_t>((32 - address % 32) % 32);
    return bytes->slice(0, skip, skip + bytes->numel() - 32);
  }
  TestTensor bytes;
  QuantizedMatrix matrix;
  std::vector<double> values;
};

constexpr BlockFormat kFormats[] = {BlockFormat::kQ8_0, BlockFormat::kQ4_0};

TEST(QuantizedWeight, BytesAreThoseOfFilesAndGroups) {
  EXPECT_EQ(block_matrix_bytes(BlockFormat::kQ8_0, 32, 64), 32 * 2 * 34);
  EXPECT_EQ(block_matrix_bytes(BlockFormat::kQ4_0, 32, 64), 32 * 2 * 18);
  EXPECT_EQ(block_matrix_bytes(BlockFormat::kQ4_0, 17, 33), 32 * 2 * 18);
  EXPECT_EQ(block_matrix_bytes(BlockFormat::kQ8_0, 0, 33), 0);
  EXPECT_THROW(block_matrix_bytes(BlockFormat::kQ8_0, int64_t{1} << 40, int64_t{1} << 40), Error);
}

TEST(QuantizedWeight, DecodesWhatTheCodesStandFor) {
  for (const BlockFormat format : kFormats)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const QuantBlocks w(format, 37, 70, "decode");
      Ctx ctx(2, "test");
      TestTensor out(dtype, {37, 70}), rows(dtype, {4, 70});
      decode_blocks(ctx, out, w.matrix);
      EXPECT_EQ(to_doubles(*out), stored(dtype, w.values));
      const TestTensor ids(Shape{4}, std::vector<int32_t>{36, 0, 36, 5});
      embedding_forward_blocks(ctx, rows, w.matrix, ids);
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(compare_exact(rows->slice(0, i, i + 1),
                                out->slice(0, ids->as<int32_t>()[i], ids->as<int32_t>()[i] + 1)),
                  "");
      // A shard with rows 10 .. 47 of a vocabulary of 60.
      const TestTensor others(Shape{3}, std::vector<int32_t>{9, 10, 59});
      TestTensor part(dtype, {3, 70});
      embedding_forward_blocks(ctx, part, w.matrix, others, {10, 60});
      EXPECT_EQ(to_doubles(part->slice(0, 0, 1)), std::vector<double>(70, 0.0));
      EXPECT_EQ(compare_exact(part->slice(0, 1, 2), out->slice(0, 0, 1)), "");
      EXPECT_EQ(to_doubles(part->slice(0, 2, 3)), std::vector<double>(70, 0.0));
      const TestTensor wrong(Shape{1}, std::vector<int32_t>{60});
      EXPECT_THROW(embedding_forward_blocks(ctx, part->slice(0, 0, 1), w.matrix, wrong, {10, 60}),
                   Error);
    }
}

// x w^T in float64, and the bound that quantized_weight.h derives for it.
struct Reference {
  std::vector<double> y, bound;
};
Reference reference(const QuantBlocks& w, const std::vector<double>& x, int64_t rows, DType out) {
  Reference ref;
  const int64_t n = w.matrix.rows, k = w.matrix.columns, blocks = (k + 31) / 32;
  constexpr double kEps32 = 0x1p-23;
  const double eps_out = out == DType::kF32 ? 0 : out == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double y = 0, bound = 0, magnitude = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        double most = 0, weights = 0;
        for (int64_t c = b * 32; c < std::min(k, b * 32 + 32); ++c) {
          const double xc = x[static_cast<size_t>(i * k + c)];
          const double wc = w.values[static_cast<size_t>(j * k + c)];
          y += xc * wc;
          most = std::max(most, std::abs(xc));
          weights += std::abs(wc);
        }
        bound += most / 254 * weights * (1 + 1e-4);  // x / e is itself rounded
        magnitude += most * weights;
      }
      bound += static_cast<double>(blocks + 3) * kEps32 * magnitude;
      bound += eps_out * (std::abs(y) + bound) + 1e-12;
      if (out == DType::kF16) bound += 0x1p-24;
      ref.y.push_back(y);
      ref.bound.push_back(bound);
    }
  return ref;
}

void expect_within(const ConstTensor& got, const Reference& want, const std::string& what) {
  const std::vector<double> y = to_doubles(got);
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_LE(std::abs(y[i] - want.y[i]), want.bound[i]) << what << " element " << i;
    worst = std::max(worst, std::abs(y[i] - want.y[i]) / want.bound[i]);
  }
  EXPECT_GT(worst, 1e-4) << what << ": the bound says nothing";
}

TEST(QuantizedWeight, ProductsAreWithinTheirBound) {
  struct Case {
    int64_t m, n, k;
  };
  for (const Case& c : {Case{1, 16, 32}, Case{1, 7, 33}, Case{2, 33, 127}, Case{5, 1, 96},
                        Case{3, 50, 1000}, Case{19, 40, 320}})
    for (const BlockFormat format : kFormats)
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        const QuantBlocks w(format, c.n, c.k, "product");
        const TestTensor x(dtype, {c.m, c.k}, normals("x", c.m * c.k));
        const Reference want = reference(w, to_doubles(*x), c.m, dtype);
        for_each_kernel([&](Ctx& ctx) {
          TestTensor y(dtype, {c.m, c.n});
          linear_forward_blocks(ctx, y, x, {&w.matrix, 1}, {});
          expect_within(*y, want, concat(dtype_name(dtype), " ", c.m, " x ", c.n, " x ", c.k));
          return outputs(y);
        });
      }
}

// The same products on every instruction set except for float32 rounding: integers are exact.
TEST(QuantizedWeight, ExtremeCodes) {
  for (const BlockFormat format : kFormats) {
    const bool four = format == BlockFormat::kQ4_0;
    TestTensor bytes(DType::kU8, {block_matrix_bytes(format, 16, 64)});
    const QuantizedMatrix matrix{format, 16, 64, *bytes};
    std::byte file[34];
    const f16 one(1.0f);
    for (int64_t r = 0; r < 16; ++r)
      for (int64_t b = 0; b < 2; ++b) {
        std::memcpy(file, &one, 2);
        const int q = four ? (r % 2 == 0 ? 0x00 : 0xff) : (r % 2 == 0 ? -127 : 127);
        std::fill(file + 2, file + 34, static_cast<std::byte>(q & 255));
        store_block(matrix, *bytes, r, b, file);
      }
    for (const double sign : {1.0, -1.0}) {
      const TestTensor x(DType::kF32, {1, 64}, std::vector<double>(64, sign * 127));
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(DType::kF32, {1, 16});
        linear_forward_blocks(ctx, y, x, {&matrix, 1}, {});
        for (int64_t r = 0; r < 16; ++r) {
          const double w = four ? (r % 2 == 0 ? -8 : 7) : (r % 2 == 0 ? -127 : 127);
          EXPECT_EQ(static_cast<double>(y->as<float>()[r]), 64 * 127 * sign * w) << r;
        }
        return outputs(y);
      });
    }
  }
}

TEST(QuantizedWeight, PartsStandSideBySideAndTheBiasIsAdded) {
  const QuantBlocks a(BlockFormat::kQ8_0, 20, 64, "a"), b(BlockFormat::kQ4_0, 9, 64, "b");
  const TestTensor x(DType::kF32, {3, 64}, normals("x", 3 * 64));
  const TestTensor bias(DType::kF32, {29}, normals("bias", 29));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor y(DType::kF32, {3, 40}), left(DType::kF32, {3, 20}), right(DType::kF32, {3, 9});
    const QuantizedMatrix parts[] = {a.matrix, b.matrix};
    linear_forward_blocks(ctx, y->slice(1, 4, 33), x, parts, bias);
    linear_forward_blocks(ctx, left, x, {parts, 1}, {});
    linear_forward_blocks(ctx, right, x, {parts + 1, 1}, {});
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 40; ++j) {
        float want = 0;
        if (j >= 4 && j < 33) {
          want = j < 24 ? left->as<float>()[i * 20 + j - 4] : right->as<float>()[i * 9 + j - 24];
          want += bias->as<float>()[j - 4];
        }
        EXPECT_EQ(y->as<float>()[i * 40 + j], want) << i << " " << j;
      }
    return outputs(y);
  });
}

TEST(QuantizedWeight, ARowHasTheSameBitsBesideAnyOthers) {
  constexpr int64_t kRows = 21;
  for (const BlockFormat format : kFormats) {
    const QuantBlocks w(format, 45, 290, "alone");
    const TestTensor x(DType::kBF16, {kRows, 290}, normals("x", kRows * 290));
    for_each_kernel([&](Ctx& ctx) {
      TestTensor all(DType::kF32, {kRows, 45});
      linear_forward_blocks(ctx, all, x, {&w.matrix, 1}, {});
      for (int64_t m = 1; m <= 10; ++m)
        for (int64_t first = 0; first + m <= kRows; first += m) {
          TestTensor some(DType::kF32, {m, 45});
          linear_forward_blocks(ctx, some, x->slice(0, first, first + m), {&w.matrix, 1}, {});
          EXPECT_EQ(compare_exact(*some, all->slice(0, first, first + m)), "") << m << " " << first;
        }
      // Rows of experts: a range of rows that were rounded together.
      const QuantizedRows rows = quantize_rows(ctx, x, 13);
      TestTensor some(DType::kF32, {6, 45});
      block_product(ctx, some, rows, 7, {&w.matrix, 1}, {});
      EXPECT_EQ(compare_exact(*some, all->slice(0, 7, 13)), "");
      return outputs(all);
    });
  }
}

TEST(QuantizedWeight, WhatIsNotFiniteStaysSo) {
  const QuantBlocks w(BlockFormat::kQ8_0, 16, 64, "finite");
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    std::vector<double> values = normals("x", 3 * 64);
    values[64 + 40] = bad;
    std::fill_n(values.begin() + 128, 64, 1e-38);  // negligible
    const TestTensor x(DType::kF32, {3, 64}, values);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(DType::kF32, {3, 16});
      linear_forward_blocks(ctx, y, x, {&w.matrix, 1}, {});
      for (int64_t j = 0; j < 16; ++j) {
        EXPECT_TRUE(std::isfinite(y->as<float>()[j]));
        EXPECT_TRUE(std::isnan(y->as<float>()[16 + j]));
        EXPECT_EQ(y->as<float>()[32 + j], 0.0f);
      }
      return outputs(y);
    });
  }
}

// Products sum codes and code sums. A block that is not finite must not give whatever its bits
// happen to be, but a value that no integer sum can have.
TEST(QuantizedWeight, WhatIsNotFiniteHasNoCodes) {
  for (const double bad : {std::nan(""), -std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    std::vector<double> values(96, bad);
    std::fill_n(values.begin() + 32, 32, 2.0);
    values[64 + 1] = 1;
    const TestTensor x(DType::kF32, {1, 96}, values);
    for_each_kernel([&](Ctx& ctx) {
      const QuantizedRows rows = quantize_rows(ctx, x, 1);
      TestTensor sums(DType::kI32, {1, 3});
      std::copy_n(rows.sum->as<int32_t>(), 3, sums->as<int32_t>());
      const auto* codes = reinterpret_cast<const int8_t*>(rows.codes->as<uint8_t>());
      for (int64_t block = 0; block < 3; ++block) {
        const bool finite = block == 1;
        EXPECT_EQ(rows.sum->as<int32_t>()[block], finite ? 32 * 127 : 0) << block;
        EXPECT_EQ(std::isnan(rows.scale->as<float>()[block]), !finite) << block;
        for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(codes[block * 32 + i], finite ? 127 : 0);
      }
      return outputs(sums);
    });
  }
}

TEST(QuantizedWeight, PlansAndRefuses) {
  const QuantBlocks w(BlockFormat::kQ8_0, 16, 64, "plan");
  const TestTensor x(DType::kF32, {3, 64}, normals("x", 3 * 64)), wide(DType::kF64, {3, 64});
  TestTensor y(DType::kF32, {3, 16});
  const ArenaPlan plan = expect_plannable(
      [&](Ctx& ctx) {
        linear_forward_blocks(ctx, y, x, {&w.matrix, 1}, {});
      },
      {&y});
  EXPECT_GT(plan.capacity, 3 * 64);
  Ctx ctx(1, "test");
  const TestTensor narrow(DType::kF32, {3, 32});
  EXPECT_THROW(linear_forward_blocks(ctx, y, narrow, {&w.matrix, 1}, {}), Error);
  EXPECT_THROW(linear_forward_blocks(ctx, y, wide, {&w.matrix, 1}, {}), Error);
  EXPECT_THROW(linear_forward_blocks(ctx, narrow, x, {&w.matrix, 1}, {}), Error);
  QuantizedMatrix longer = w.matrix;
  longer.rows = 17;
  EXPECT_THROW(linear_forward_blocks(ctx, TestTensor(DType::kF32, {3, 17}), x, {&longer, 1}, {}),
               Error);
}

}  // namespace
}  // namespace trireme::test::test_quantized_weight
