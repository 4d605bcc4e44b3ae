#include <cmath>
#include <numeric>

#include "engine/ops/paged_attention.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  std::string name;
  std::vector<int64_t> queries, keys;  // of each sequence
  int64_t heads, kv_heads, width;
  int64_t block_size = 16, most_blocks = 8;
  int64_t window = 0, padding = 0;
  bool packed = false;  // q is a slice of (T, H + 2 Hkv, D)
  bool large = false;

  int64_t sequences() const { return std::ssize(queries); }
  int64_t tokens() const {
    return std::accumulate(queries.begin(), queries.end(), int64_t{0}) + padding;
  }
  int64_t blocks() const { return sequences() * most_blocks + 3; }
};

std::vector<Size> sizes() {
  std::vector<Size> out = {
      {"one token", {1}, {1}, 1, 1, 1},
      {"groups of 4", {1, 1, 1}, {1, 17, 128}, 8, 2, 64},
      {"no sequence", {}, {}, 2, 1, 8},
      {"several queries", {3, 0, 2, 1}, {3, 9, 40, 33}, 4, 2, 128},
      {"several parts", {1, 2, 4}, {600, 257, 256}, 2, 1, 64, 16, 40},
      {"window", {1, 3, 2}, {700, 300, 20}, 4, 2, 40, 16, 48},
      {"odd", {1, 2}, {11, 30}, 3, 3, 7, 5, 7},
      {"wide heads, many of a group", {2}, {70}, 24, 1, 200},
      {"many of a group", {2}, {70}, 24, 1, 80},
  };
  out[3].padding = 2;
  out[3].packed = true;
  out[5].window = 37;
  for (int64_t sequences : {1, 64}) {
    const auto n = static_cast<size_t>(sequences);
    out.push_back({concat(sequences, " of 8192"), std::vector<int64_t>(n, 1),
                   std::vector<int64_t>(n, 8192), 32, 8, 128, 16, 512});
    out.back().large = true;
  }
  return out;
}

std::vector<double> sums_of(const std::vector<int64_t>& counts) {
  std::vector<double> out = {0};
  for (int64_t count : counts) out.push_back(out.back() + static_cast<double>(count));
  return out;
}

// Blocks scattered over the pool; -1 where the sequence has none.
std::vector<double> table_of(const Size& s) {
  std::vector<double> out;
  int64_t next = 0;
  for (int64_t n = 0; n < s.sequences(); ++n)
    for (int64_t b = 0; b < s.most_blocks; ++b) {
      const bool used = b * s.block_size < s.keys[static_cast<size_t>(n)];
      // 2 or 5 has no common factor with the number of blocks.
      const int64_t step = s.blocks() % 2 == 0 ? 5 : 2;
      out.push_back(used ? static_cast<double>(step * ++next % s.blocks()) : -1.0);
    }
  return out;
}

OpCase attention_case(const Size& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Shape pool{s.blocks(), s.kv_heads, s.block_size, s.width};
    ConstTensor q = run.random(
        "q", dtype, {s.tokens(), s.packed ? s.heads + 2 * s.kv_heads : s.heads, s.width});
    if (s.packed) q = q.slice(1, 0, s.heads);
    std::vector<double> lengths(s.keys.begin(), s.keys.end());
    const ConstTensor table =
        run.values("block_table", DType::kI32, {s.sequences(), s.most_blocks}, table_of(s));
    const ConstTensor cu_q =
        run.values("cu_q", DType::kI32, {s.sequences() + 1}, sums_of(s.queries));
    const ConstTensor context = run.values("context_lens", DType::kI32, {s.sequences()}, lengths);
    PagedAttentionArgs args{.scale = 1.5 / std::sqrt(static_cast<double>(s.width)),
                            .window = s.window};
    for (int64_t queries : s.queries) args.most_queries = std::max(args.most_queries, queries);
    const Tensor out = run.output("out", dtype, {s.tokens(), s.heads, s.width},
                                  whole(s.width + s.most_blocks * s.block_size));
    paged_attention(run.ctx, out, q, run.random("k", dtype, pool), run.random("v", dtype, pool),
                    table, cu_q, context, args);
  };
  const auto keys = static_cast<double>(std::accumulate(s.keys.begin(), s.keys.end(), int64_t{0}));
  return {.op = "paged_attention",
          .shape = s.name,
          .dtype = dtype,
          .body = body,
          .flops = 4.0 * keys * static_cast<double>(s.heads * s.width),
          .bytes = 2.0 * keys * static_cast<double>(s.kv_heads * s.width * dtype_size(dtype)),
          .large = s.large};
}

struct Rows {
  int64_t tokens, kv_heads, width, block_size;
  bool large = false;
};

OpCase rows_case(const Rows& s, DType dtype, bool append) {
  constexpr int64_t kStep = 7;  // slots in no order
  const auto body = [=](OpRun& run) {
    const int64_t blocks = kStep * s.tokens / s.block_size + 1;
    const Shape pool{blocks, s.kv_heads, s.block_size, s.width};
    std::vector<double> slots;
    for (int64_t t = 0; t < s.tokens; ++t)
      slots.push_back(t % 5 == 3 ? -1.0 : static_cast<double>(kStep * (s.tokens - 1 - t)));
    const ConstTensor where = run.values("slots", DType::kI64, {s.tokens}, slots);
    if (append) {
      const ConstTensor kv = run.random("kv", dtype, {s.tokens, 2 * s.kv_heads, s.width});
      return paged_append(run.ctx, run.updated("k_pool", dtype, pool, exact()),
                          run.updated("v_pool", dtype, pool, exact()), kv.slice(1, 0, s.kv_heads),
                          kv.slice(1, s.kv_heads, 2 * s.kv_heads), where);
    }
    const Shape rows{s.tokens, s.kv_heads, s.width};
    paged_gather(run.ctx, run.output("k", dtype, rows, exact()),
                 run.output("v", dtype, rows, exact()), run.random("k_pool", dtype, pool),
                 run.random("v_pool", dtype, pool), where);
  };
  return {.op = append ? "paged_append" : "paged_gather",
          .shape = concat("(", s.tokens, ", ", s.kv_heads, ", ", s.width, "), ", s.block_size),
          .dtype = dtype,
          .body = body,
          .bytes = 4.0 * static_cast<double>(s.tokens * s.kv_heads * s.width * dtype_size(dtype)),
          .large = s.large};
}

}  // namespace

std::vector<OpCase> paged_attention_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Size& s : sizes()) cases.push_back(attention_case(s, dtype));
    for (const Rows& s :
         {Rows{0, 2, 8, 16}, {1, 1, 1, 1}, {13, 3, 24, 16}, {9, 2, 7, 5}, {8192, 8, 128, 16, true}})
      for (bool append : {false, true}) cases.push_back(rows_case(s, dtype, append));
  }
  return cases;
}

}  // namespace trireme::test
