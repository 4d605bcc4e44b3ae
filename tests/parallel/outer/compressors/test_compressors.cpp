#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/rows/fill_normal.h"
#include "parallel/outer/compressors/compressors.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"

namespace trireme::test::test_compressors {
namespace {

constexpr uint64_t kSeed = 5;
constexpr const char* kName = "model.layers.0.mlp.up_proj.weight";

std::vector<CompressionOptions> all_options() {
  std::vector<CompressionOptions> all;
  for (int bits : {8, 4, 1})
    for (int64_t block : {0, 16}) all.push_back({.bits = bits, .block = block});
  for (const char* method : {"top_k", "random_k"})
    for (double ratio : {0.01, 0.25})
      for (int64_t block : {0, 20}) all.push_back({method, 8, ratio, 4, block});
  for (int rank : {1, 4}) all.push_back({.method = "powersgd", .rank = rank});
  return all;
}

EncodingKey key_of(int64_t round) {
  return {.seed = kSeed, .stream = stream_id(kName), .round = round};
}

// Sender of one matrix, and what its receiver decoded in all rounds.
struct Link {
  Link(Ctx& of_ctx, const Compressor& c, DType of_dtype, const Shape& of_shape, bool feedback)
      : ctx(of_ctx),
        compressor(c),
        shape(of_shape),
        wire(DType::kU8, {c.wire_bytes(of_dtype, shape[0], shape[1])}),
        state(of_dtype, c.state_shape(shape[0], shape[1])),
        residual(of_dtype, shape, std::vector<double>(static_cast<size_t>(shape.numel()), 0.0)),
        sent(of_dtype, shape, to_doubles(*residual)),
        with_feedback(feedback) {
    c.initialize_state(ctx, state, key_of(0));
  }
  void send(const TestTensor& x, int64_t round) {
    compressor.encode(ctx, wire, x, with_feedback ? *residual : Tensor(), state, key_of(round));
    compressor.decode(ctx, sent, *wire, key_of(round), true);
  }
  Ctx& ctx;
  const Compressor& compressor;
  Shape shape;
  TestTensor wire, state, residual, sent;
  bool with_feedback;
};

double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::max(most, std::abs(v));
  return most;
}

TEST(Compressors, SentAndResidualSumToTheInput) {
  Ctx ctx(2, "test");
  for (const CompressionOptions& options : all_options())
    for (const Shape& shape : {Shape{1, 1}, Shape{1, 333}, Shape{37, 53}}) {
      const std::unique_ptr<Compressor> compressor = make_compressor(options);
      Link link(ctx, *compressor, DType::kF32, shape, true);
      std::vector<double> total(static_cast<size_t>(shape.numel()), 0.0);
      for (int round = 0; round < 20; ++round) {
        const TestTensor x(DType::kF32, shape, normals(concat("x", round), shape.numel()));
        const std::vector<double> values = to_doubles(*x);
        for (size_t i = 0; i < total.size(); ++i) total[i] += values[i];
        link.send(x, round);
      }
      const std::vector<double> sent = to_doubles(*link.sent), left = to_doubles(*link.residual);
      const double scale = std::max(largest(sent), largest(left));
      for (size_t i = 0; i < total.size(); ++i)
        EXPECT_NEAR(sent[i] + left[i], total[i], 1e-5 * scale)
            << options.method << " " << text(shape);
      EXPECT_GT(largest(sent), 0.0);
    }
}

// Without feedback the sum of what is sent misses what one bit per element cannot say.
TEST(Compressors, FeedbackBringsTheSumNearer) {
  Ctx ctx(1, "test");
  const Shape shape{8, 64};
  const TestTensor x(DType::kF32, shape, normals("x", 512));
  const std::vector<double> values = to_doubles(*x);
  const std::unique_ptr<Compressor> compressor = make_compressor({.bits = 1});
  double error[2] = {};
  for (bool feedback : {false, true}) {
    Link link(ctx, *compressor, DType::kF32, shape, feedback);
    for (int round = 0; round < 50; ++round) link.send(x, round);
    const std::vector<double> sent = to_doubles(*link.sent);
    for (size_t i = 0; i < values.size(); ++i)
      error[feedback] += std::abs(sent[i] / 50 - values[i]) / 512;
  }
  EXPECT_GT(error[0], 0.3);
  EXPECT_LT(error[1], error[0] / 5);
}

TEST(Compressors, EqualTheReplayInNumpy) {
  const auto cases =
      read_json_file<nlohmann::json>(concat(source_folder(), "/tests/golden/compression.json"));
  ASSERT_EQ(cases.size(), 7U);
  const Shape shape{6, 37};
  for (const auto& one : cases) {
    const auto& json = one.at("options");
    const CompressionOptions options{.method = json.at("method"),
                                     .bits = json.value("bits", 8),
                                     .ratio = json.value("ratio", 0.01),
                                     .rank = json.value("rank", 4),
                                     .block = json.value("block", int64_t{0})};
    const DType dtype = one.at("dtype") == "float64" ? DType::kF64 : DType::kF32;
    const auto want = one.at("sent").get<std::vector<double>>();
    const std::unique_ptr<Compressor> compressor = make_compressor(options);
    for (int threads : {1, 2}) {
      Ctx ctx(threads, "test");
      Link link(ctx, *compressor, dtype, shape, true);
      if (options.method == "powersgd")
        for (int64_t i = 0; i < link.state->numel(); ++i)
          link.state->as<double>()[i] = static_cast<double>(i * i * 37 % 23 - 11) / 8;
      for (int64_t round = 0; round < 20; ++round) {
        std::vector<double> x;
        for (int64_t i = 0; i < shape.numel(); ++i) {
          const int64_t residue = (i * 7919 + round * 104729) % 2003;
          x.push_back(static_cast<double>(residue * residue % 2003 - 1001) / 512);
        }
        link.send(TestTensor(dtype, shape, x), round);
      }
      const std::vector<double> sent = to_doubles(*link.sent);
      ASSERT_EQ(sent.size(), want.size());
      const double scale = largest(want);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(sent[i], want[i], 1e-6 * scale) << options.method << " " << options.bits;
    }
  }
}

// The formulas of docs/design/outer.md.
TEST(Compressors, WireBytesFollowTheFormula) {
  const auto padded = [](int64_t bytes) { return (bytes + 7) / 8 * 8; };
  for (int64_t rows : {1, 3, 64})
    for (int64_t columns : {1, 7, 8, 255, 256, 257, 5000})
      for (const CompressionOptions& o : all_options()) {
        const auto compressor = make_compressor(o);
        int64_t want = 0;
        if (o.method == "quantize") {
          const int64_t block = o.block != 0 ? o.block : o.bits == 1 ? 1024 : 256;
          want = padded(4 * rows * ((columns + block - 1) / block)) +
                 padded(rows * ((columns * o.bits + 7) / 8));
        } else if (o.method == "powersgd") {
          const bool whole = o.rank * (rows + columns) >= rows * columns;
          want = whole ? padded(4 * rows * columns)
                       : padded(4 * o.rank * rows) + padded(4 * o.rank * columns);
        } else {
          const int64_t block = o.block != 0 ? o.block : 4096;
          int64_t kept = 0;
          for (int64_t c = 0; c < columns; c += block)
            kept += std::max<int64_t>(
                1, std::llround(o.ratio * static_cast<double>(std::min(block, columns - c))));
          want = padded(4 * rows * kept) + (o.method == "top_k" ? padded(2 * rows * kept) : 0);
        }
        EXPECT_EQ(compressor->wire_bytes(DType::kF32, rows, columns), want)
            << o.method << " " << rows << " " << columns;
      }
  // 1 bit and a scale per 1024 elements: 31 times less than float32.
  EXPECT_EQ(make_compressor({.bits = 1})->wire_bytes(DType::kF32, 1, 1 << 20), (1 << 17) + 4096);
}

TEST(Compressors, AreExactWhereNothingIsLeftOut) {
  Ctx ctx(1, "test");
  const Shape shape{9, 70};
  const TestTensor x(DType::kF32, shape, normals("x", shape.numel()));
  for (const CompressionOptions& options :
       {CompressionOptions{"top_k", 8, 1.0, 4, 32}, CompressionOptions{"random_k", 8, 1.0, 4, 32},
        CompressionOptions{"powersgd", 8, 0.01, 9, 0}}) {
    const auto compressor = make_compressor(options);
    Link link(ctx, *compressor, DType::kF32, shape, true);
    link.send(x, 0);
    EXPECT_EQ(to_doubles(*link.sent), to_doubles(*x)) << options.method;
    EXPECT_EQ(largest(to_doubles(*link.residual)), 0.0);
  }
}

// A matrix of rank 3 is within reach of rank 3 and 4; the state of the dependent one stays alive.
TEST(Compressors, PowerSgdSendsMatricesOfItsRank) {
  Ctx ctx(1, "test");
  const int64_t rows = 40, columns = 60;
  const std::vector<double> a = normals("a", rows * 3), b = normals("b", 3 * columns);
  std::vector<double> values(static_cast<size_t>(rows * columns), 0.0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t k = 0; k < 3; ++k)
        values[static_cast<size_t>(r * columns + c)] +=
            a[static_cast<size_t>(r * 3 + k)] * b[static_cast<size_t>(k * columns + c)];
  for (DType dtype : {DType::kF32, DType::kF64})
    for (int rank : {3, 4}) {
      const auto compressor = make_compressor({.method = "powersgd", .rank = rank});
      Link link(ctx, *compressor, dtype, {rows, columns}, true);
      const TestTensor zero(dtype, {rows, columns}, std::vector<double>(values.size(), 0.0));
      link.send(zero, 0);  // must not end the iteration
      EXPECT_EQ(largest(to_doubles(*link.sent)), 0.0);
      link.send(TestTensor(dtype, {rows, columns}, values), 1);
      const std::vector<double> sent = to_doubles(*link.sent);
      const double close = dtype == DType::kF64 ? 1e-12 : 1e-5;
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(sent[i], values[i], close * largest(values));
    }
}

// Two ranks that have the left and the right half of a matrix, in whole blocks, send what one rank
// with all of it sends.
TEST(Compressors, PartsSendWhatTheWholeSends) {
  Ctx ctx(1, "test");
  const int64_t rows = 5, columns = 90, half = 40;
  const std::vector<double> values = normals("x", rows * columns);
  for (const CompressionOptions& options :
       {CompressionOptions{"quantize", 8, 0.1, 4, 8}, CompressionOptions{"quantize", 1, 0.1, 4, 40},
        CompressionOptions{"top_k", 8, 0.1, 4, 20},
        CompressionOptions{"random_k", 8, 0.1, 4, 20}}) {
    const auto compressor = make_compressor(options);
    ASSERT_TRUE(compressor->can_divide());
    Link whole(ctx, *compressor, DType::kF32, {rows, columns}, true);
    whole.send(TestTensor(DType::kF32, {rows, columns}, values), 3);
    const std::vector<double> want = to_doubles(*whole.sent), left = to_doubles(*whole.residual);
    for (int64_t begin : {int64_t{0}, half}) {
      const int64_t end = begin == 0 ? half : columns;
      std::vector<double> part;
      for (int64_t r = 0; r < rows; ++r)
        part.insert(part.end(), values.begin() + r * columns + begin,
                    values.begin() + r * columns + end);
      const Shape shape{rows, end - begin};
      EncodingKey key = key_of(3);
      key.first_block = begin / compressor->block();
      key.block_stride = ceil_div(columns, compressor->block());
      TestTensor wire(DType::kU8, {compressor->wire_bytes(DType::kF32, rows, end - begin)});
      TestTensor y(DType::kF32, shape);
      TestTensor residual(DType::kF32, shape, std::vector<double>(part.size(), 0.0));
      compressor->encode(ctx, wire, TestTensor(DType::kF32, shape, part), residual, {}, key);
      compressor->decode(ctx, y, *wire, key, false);
      const std::vector<double> got = to_doubles(*y), rest = to_doubles(*residual);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = begin; c < end; ++c) {
          const auto own = static_cast<size_t>(r * (end - begin) + c - begin);
          EXPECT_EQ(got[own], want[static_cast<size_t>(r * columns + c)]) << options.method;
          EXPECT_EQ(rest[own], left[static_cast<size_t>(r * columns + c)]);
        }
    }
  }
}

TEST(Compressors, RandomElementsDifferByRoundAndTensor) {
  Ctx ctx(1, "test");
  const auto compressor = make_compressor({.method = "random_k", .ratio = 0.1});
  const TestTensor x(DType::kF32, {1, 1000}, std::vector<double>(1000, 1.0));
  std::vector<std::vector<double>> sent;
  for (const EncodingKey& key : {EncodingKey{1, 2, 0}, EncodingKey{1, 2, 1}, EncodingKey{1, 3, 0},
                                 EncodingKey{2, 2, 0}, EncodingKey{1, 2, 0}}) {
    TestTensor wire(DType::kU8, {compressor->wire_bytes(DType::kF32, 1, 1000)});
    TestTensor y(DType::kF32, {1, 1000});
    compressor->encode(ctx, wire, x, {}, {}, key);
    compressor->decode(ctx, y, *wire, key, false);
    sent.push_back(to_doubles(*y));
  }
  EXPECT_EQ(sent[0], sent[4]);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(sent[i], sent[j]);
}

TEST(Compressors, ArbitraryBytesDecode) {
  Ctx ctx(1, "test");
  for (const CompressionOptions& options : all_options()) {
    const auto compressor = make_compressor(options);
    TestTensor wire(DType::kU8, {compressor->wire_bytes(DType::kF32, 37, 53)});
    for (int64_t i = 0; i < wire->numel(); ++i)
      wire->as<uint8_t>()[i] = static_cast<uint8_t>(i * 151 + i / 7);
    TestTensor y(DType::kF32, {37, 53}, std::vector<double>(37 * 53, 1.0));
    for (bool add : {false, true}) compressor->decode(ctx, y, *wire, key_of(0), add);
    EXPECT_TRUE(y.guards_intact());
    for (int64_t change : {-8, 8}) {
      const TestTensor other(DType::kU8, {wire->numel() + change});
      EXPECT_THROW(compressor->decode(ctx, y, *other, key_of(0), false), Error);
    }
    const TestTensor longer(DType::kU8, {wire->numel() + 8});
    EXPECT_THROW(
        compressor->decode(ctx, y, longer->slice(0, 1, wire->numel() + 1), key_of(0), false),
        Error);
  }
}

// The streams of parameters' initial values have the names of the parameters.
TEST(Compressors, DrawFromStreamsOfTheirOwn) {
  Ctx ctx(1, "test");
  const auto compressor = make_compressor({.method = "powersgd", .rank = 1});
  TestTensor state(DType::kF32, {1, 50}), weight(DType::kF32, {50});
  compressor->initialize_state(ctx, state, key_of(0));
  fill_normal(ctx, weight, {kSeed, stream_id(kName)}, 1.0, {});
  EXPECT_NE(to_doubles(*state), to_doubles(*weight));
}

// After a matrix that is not finite, PowerSGD's state still leads to finite ones.
TEST(Compressors, PowerSgdOutlivesNan) {
  Ctx ctx(1, "test");
  const auto compressor = make_compressor({.method = "powersgd", .rank = 2});
  const Shape shape{20, 30};
  Link link(ctx, *compressor, DType::kF32, shape, false);
  std::vector<double> values = normals("x", 600);
  const TestTensor good(DType::kF32, shape, values);
  values[77] = std::nan("");
  const std::vector<double> before = to_doubles(*link.state);
  link.send(TestTensor(DType::kF32, shape, values), 0);
  EXPECT_TRUE(std::isnan(to_doubles(*link.sent)[17]));
  EXPECT_EQ(to_doubles(*link.state), before);
}

TEST(Compressors, RefuseOtherTypesAndShapes) {
  Ctx ctx(1, "test");
  const auto compressor = make_compressor({.bits = 8});
  TestTensor wire(DType::kU8, {compressor->wire_bytes(DType::kF32, 2, 8)});
  const TestTensor x(DType::kF32, {2, 8}), flat(DType::kF32, {16}), narrow(DType::kBF16, {2, 8});
  const TestTensor wide(DType::kF64, {2, 8});
  EXPECT_THROW(compressor->encode(ctx, wire, flat, {}, {}, {}), Error);
  EXPECT_THROW(compressor->encode(ctx, wire, x, wide, {}, {}), Error);
  EXPECT_THROW(compressor->encode(ctx, wire, *wire, {}, {}, {}), Error);
  const auto low_rank = make_compressor({.method = "powersgd", .rank = 1});
  TestTensor factors(DType::kU8, {low_rank->wire_bytes(DType::kF32, 2, 8)});
  EXPECT_THROW(low_rank->encode(ctx, factors, x, {}, {}, {}), Error);
  for (const char* method : {"top_k", "random_k"}) {  // 16 bits only where a method takes them
    const auto sparse = make_compressor({.method = method});
    TestTensor kept(DType::kU8, {sparse->wire_bytes(DType::kBF16, 2, 8)});
    EXPECT_THROW(sparse->encode(ctx, kept, narrow, {}, {}, {}), Error);
    EXPECT_THROW(sparse->decode(ctx, narrow, *kept, {}, false), Error);
  }
}

TEST(Compressors, RefuseOptionsOutOfRange) {
  using Problems = std::vector<std::string>;
  EXPECT_EQ(compression_problems({.method = "topk"}),
            (Problems{"method is \"topk\", expected one of \"quantize\", \"top_k\", \"random_k\", "
                      "\"powersgd\""}));
  EXPECT_EQ(compression_problems({.bits = 2, .block = 12}),
            (Problems{"bits is 2, expected 8, 4 or 1",
                      "block is 12, expected a multiple of 8, at most 1048576"}));
  EXPECT_EQ(compression_problems({"top_k", 8, 0.0, 4, 16385}),
            (Problems{"ratio is 0, expected a number in (0, 1]",
                      "block is 16385, expected at most 16384"}));
  EXPECT_EQ(compression_problems({"random_k", 8, std::nan(""), 4, 0}).size(), 1U);
  EXPECT_EQ(compression_problems({.method = "powersgd", .rank = 0}),
            (Problems{"rank is 0, expected 1 to 64"}));
  EXPECT_THROW(make_compressor({.method = "powersgd", .rank = 65}), InputError);
  for (const CompressorRow& row : compressors())
    EXPECT_TRUE(compression_problems({.method = row.method}).empty()) << row.method;
}

}  // namespace
}  // namespace trireme::test::test_compressors
