// Ops that move whole rows: copies, lookups, rotations.
#include "engine/ops/attention/latent_heads.h"
#include "engine/ops/attention/rotary.h"
#include "engine/ops/rows/copy_rows.h"
#include "engine/ops/rows/embedding.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

const std::vector<DType> kFloats = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

// A permutation of [0, n) that moves every element: a step that is coprime to n.
std::vector<double> shuffled(int64_t n) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>((i * 7919 + 3) % n));
  return out;
}

// Rows of `columns` elements at a stride of columns + margin.
struct CopySize {
  int64_t rows, columns, margin;
  bool large = false;
};
const std::vector<CopySize> kCopySizes = {{0, 4, 0},   {1, 1, 2},  {5, 3, 1},
                                          {9, 64, 32}, {70, 8, 0}, {16384, 4096, 0, true}};

OpCase copy_case(const CopySize& s, DType dtype, bool to, bool from) {
  const auto body = [=](OpRun& run) {
    const Shape wide{s.rows, s.columns + s.margin};
    const Tensor y = run.updated("y", dtype, wide, exact());
    const ConstTensor x = run.random("x", dtype, wide);
    // Half of the rows when both index lists are used.
    const int64_t n = to && from ? s.rows / 2 : s.rows;
    std::vector<double> list = shuffled(s.rows);
    list.resize(static_cast<size_t>(n));
    const ConstTensor y_rows = to ? run.values("y_rows", DType::kI32, {n}, list) : ConstTensor();
    const ConstTensor x_rows =
        from ? run.integers("x_rows", DType::kI32, {n}, 0, s.rows) : ConstTensor();
    copy_rows(run.ctx, y.slice(1, s.margin, s.margin + s.columns), x.slice(1, 0, s.columns), y_rows,
              x_rows);
  };
  return {.op = "copy_rows",
          .shape = concat("(", s.rows, ", ", s.columns, " of ", s.columns + s.margin, ")",
                          to ? " to" : "", from ? " from" : ""),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>(2 * s.rows * s.columns * dtype_size(dtype)),
          .large = s.large};
}

OpCase round_case(const CopySize& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Tensor y = run.updated("y", dtype, {s.rows, s.columns + s.margin}, exact());
    round_rows(run.ctx, y.slice(1, s.margin, s.margin + s.columns),
               run.random("x", sum_dtype(dtype), {s.rows, s.columns}));
  };
  return {.op = "round_rows",
          .shape = concat("(", s.rows, ", ", s.columns, " of ", s.columns + s.margin, ")"),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>(s.rows * s.columns *
                                       (dtype_size(dtype) + dtype_size(sum_dtype(dtype)))),
          .large = s.large};
}

struct TableSize {
  int64_t tokens, vocabulary, columns;
  TableShard shard = {};
  int64_t entries() const { return shard.total > 0 ? vocabulary / 2 : vocabulary; }
  bool large = false;
};
// Frequent ids (more than are loaded together), ids of other shards, more tokens than a chunk of
// the sort, tables with one, two and three digits of row numbers.
const std::vector<TableSize> kTableSizes = {
    {0, 7, 8},
    {1, 1, 1},
    {33, 2, 7},
    {600, 50, 33},
    {40, 10, 264, {5, 10}},
    {600, 12, 16, {0, 12}},
    {900, 255, 3},
    {900, 256, 3},
    {700, 600, 5, {300, 600}},
    {1500, 70001, 2},
    {.tokens = 32768, .vocabulary = 50304, .columns = 4096, .large = true}};

std::string describe(const TableSize& s, bool accumulate) {
  return concat(s.tokens, " of (", s.entries(), ", ", s.columns, ")",
                s.shard.total > 0 ? concat(" from ", s.shard.first) : std::string(),
                accumulate ? " accumulate" : "");
}

OpCase lookup_case(const TableSize& s, DType dtype, bool accumulate) {
  const auto body = [=](OpRun& run) {
    const Shape rows{s.tokens, s.columns};
    const Tensor y =
        accumulate ? run.updated("y", dtype, rows, exact()) : run.output("y", dtype, rows, exact());
    embedding_forward(run.ctx, y, run.random("table", dtype, {s.entries(), s.columns}),
                      run.integers("ids", DType::kI32, {s.tokens}, 0, s.vocabulary), accumulate,
                      s.shard);
  };
  return {
      .op = "embedding_forward",
      .shape = describe(s, accumulate),
      .dtype = dtype,
      .body = body,
      .bytes = static_cast<double>((accumulate ? 3 : 2) * s.tokens * s.columns * dtype_size(dtype)),
      .large = s.large};
}

// The same additions in the same order as on the CPU.
OpCase lookup_backward_case(const TableSize& s, DType dtype, bool accumulate) {
  const auto body = [=](OpRun& run) {
    const Shape table{s.entries(), s.columns};
    const DType sums = sum_dtype(dtype);
    const Tensor d_table = accumulate ? run.updated("d_table", sums, table, exact())
                                      : run.output("d_table", sums, table, exact());
    embedding_backward(run.ctx, d_table, run.random("dy", dtype, {s.tokens, s.columns}),
                       run.integers("ids", DType::kI32, {s.tokens}, 0, s.vocabulary), accumulate,
                       s.shard);
  };
  return {.op = "embedding_backward",
          .shape = describe(s, accumulate),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>(
              s.tokens * s.columns * dtype_size(dtype) +
              (accumulate ? 0 : s.entries() * s.columns * dtype_size(sum_dtype(dtype)))),
          .large = s.large};
}

struct HeadSize {
  int64_t tokens, heads, width, margin;
  bool large = false;
};
const std::vector<HeadSize> kHeadSizes = {{0, 2, 8, 0},   {1, 1, 2, 0},
                                          {5, 3, 6, 1},   {9, 2, 64, 64},
                                          {33, 1, 16, 0}, {16384, 32, 128, 0, true}};

// margin: elements, of a key or a value, between a token's heads and the next token's.
OpCase rotary_case(const HeadSize& s, DType dtype, bool inverse, RotaryPairs pairs) {
  constexpr int64_t kPositions = 50;
  const auto body = [=](OpRun& run) {
    const int64_t columns = s.heads * s.width;
    const Tensor packed = run.updated("x", dtype, {s.tokens, columns + s.margin}, whole(2));
    const DType sums = sum_dtype(dtype);
    rotary(run.ctx, packed.slice(1, 0, columns).split_last(s.heads, s.width),
           run.random("cos_sin", sums, {kPositions, s.width}),
           run.integers("positions", DType::kI32, {s.tokens}, 0, kPositions), inverse, pairs);
  };
  return {
      .op = "rotary",
      .shape = concat("(", s.tokens, ", ", s.heads, ", ", s.width, ")", inverse ? " inverse" : "",
                      pairs == RotaryPairs::kInterleaved ? " interleaved" : ""),
      .dtype = dtype,
      .body = body,
      .bytes = static_cast<double>(2 * s.tokens * s.heads * s.width * dtype_size(dtype)),
      .large = s.large};
}

struct LatentSize {
  int64_t tokens, heads, nope, rope, value;
  bool large = false;
};
// Values as wide as keys, narrower, and none; keys without an unrotated part.
const std::vector<LatentSize> kLatentSizes = {{0, 2, 8, 8, 8},
                                              {1, 1, 3, 2, 5},
                                              {5, 3, 6, 4, 7},
                                              {9, 4, 16, 8, 16},
                                              {4, 2, 0, 6, 6},
                                              {33, 5, 24, 8, 0},
                                              {4096, 128, 128, 64, 128, true}};

std::string describe(const LatentSize& s) {
  return concat("(", s.tokens, ", ", s.heads, ", ", s.nope, " + ", s.rope, ", ", s.value, ")");
}

double latent_bytes(const LatentSize& s, DType dtype) {
  const int64_t head = 2 * (s.nope + s.rope) + s.nope + s.value;
  return static_cast<double>((s.tokens * s.heads * head + s.tokens * s.rope) * dtype_size(dtype));
}

OpCase latent_case(const LatentSize& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Shape heads{s.tokens, s.heads, s.nope + s.rope};
    latent_heads_forward(run.ctx, run.output("k", dtype, heads, exact()),
                         run.output("v", dtype, heads, exact()),
                         run.random("kv", dtype, {s.tokens, s.heads, s.nope + s.value}),
                         run.random("k_rope", dtype, {s.tokens, s.rope}));
  };
  return {.op = "latent_heads_forward",
          .shape = describe(s),
          .dtype = dtype,
          .body = body,
          .bytes = latent_bytes(s, dtype),
          .large = s.large};
}

// Heads are summed in the same order as on the CPU.
OpCase latent_backward_case(const LatentSize& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Shape heads{s.tokens, s.heads, s.nope + s.rope};
    latent_heads_backward(run.ctx,
                          run.output("d_kv", dtype, {s.tokens, s.heads, s.nope + s.value}, exact()),
                          run.output("d_k_rope", dtype, {s.tokens, s.rope}, exact()),
                          run.random("dk", dtype, heads), run.random("dv", dtype, heads));
  };
  return {.op = "latent_heads_backward",
          .shape = describe(s),
          .dtype = dtype,
          .body = body,
          .bytes = latent_bytes(s, dtype),
          .large = s.large};
}

}  // namespace

std::vector<OpCase> row_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : kFloats) {
    for (const CopySize& s : kCopySizes) {
      for (bool to : {false, true})
        for (bool from : {false, true}) cases.push_back(copy_case(s, dtype, to, from));
      cases.push_back(round_case(s, dtype));
    }
    for (const TableSize& s : kTableSizes)
      for (bool accumulate : {false, true}) {
        cases.push_back(lookup_case(s, dtype, accumulate));
        cases.push_back(lookup_backward_case(s, dtype, accumulate));
      }
    for (const HeadSize& s : kHeadSizes)
      for (bool inverse : {false, true})
        for (RotaryPairs pairs : {RotaryPairs::kHalves, RotaryPairs::kInterleaved})
          cases.push_back(rotary_case(s, dtype, inverse, pairs));
    for (const LatentSize& s : kLatentSizes) {
      cases.push_back(latent_case(s, dtype));
      cases.push_back(latent_backward_case(s, dtype));
    }
  }
  return cases;
}

}  // namespace trireme::test
