#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/ops/attention/paged_attention.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  std::string name;
  std::vector<int64_t> queries, keys;  // by sequence
  int64_t heads, kv_heads, width;
  int64_t block_size = 16, max_blocks = 8;
  int64_t window = 0, padding = 0;
  bool packed = false;   // q is a slice of (T, H + 2 Hkv, D)
  bool bounded = false;  // max_context_len is passed
  bool sinks = false;
  double soft_cap = 0;
  bool large = false;

  int64_t sequences() const { return std::ssize(queries); }
  int64_t tokens() const {
    return std::accumulate(queries.begin(), queries.end(), int64_t{0}) + padding;
  }
  int64_t blocks() const { return sequences() * max_blocks + 3; }
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
      {"a prompt among texts", {1, 45, 0, 1, 5, 1}, {600, 45, 3, 1, 700, 290}, 4, 2, 64, 16, 64},
      {"a long prompt's end", {70, 1}, {900, 2}, 2, 1, 64, 16, 64},
  };
  out[9].padding = 3;
  out[0].bounded = out[4].bounded = out[9].bounded = true;
  out[3].padding = 2;
  out[3].packed = true;
  out[5].window = 37;
  out[1].soft_cap = out[5].soft_cap = out[7].soft_cap = out[9].soft_cap = 1.5;
  out[2].sinks = out[4].sinks = out[5].sinks = out[6].sinks = out[9].sinks = true;
  for (int64_t sequences : {1, 64}) {
    const auto n = static_cast<size_t>(sequences);
    out.push_back({concat(sequences, " of 8192"), std::vector<int64_t>(n, 1),
                   std::vector<int64_t>(n, 8192), 32, 8, 128, 16, 512});
    out.back().large = true;
  }
  return out;
}

std::string name_of(const std::string& shape, const KvType& type) {
  return type.codes == KvCodes::kNone ? shape : concat(shape, ", ", text(type));
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
    for (int64_t b = 0; b < s.max_blocks; ++b) {
      const bool used = b * s.block_size < s.keys[static_cast<size_t>(n)];
      // Either 2 or 5 is coprime to the number of blocks.
      const int64_t step = s.blocks() % 2 == 0 ? 5 : 2;
      out.push_back(used ? static_cast<double>(step * ++next % s.blocks()) : -1.0);
    }
  return out;
}

// Codes of finite values, of both signs.
std::vector<double> codes_of(const std::string& name, int64_t n, KvCodes codes) {
  const uint32_t most = codes == KvCodes::kE5M2 ? 0x7b : codes == KvCodes::kE4M3 ? 0x7e : 0x7f;
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = philox_word({2, stream_id(name)}, static_cast<uint64_t>(i));
    const uint32_t magnitude = (word >> 1) % (most + 1), sign = word & 1u;
    out[static_cast<size_t>(i)] = static_cast<double>(magnitude | sign << 7);
  }
  return out;
}

// Pool of keys or values and, for codes, their scales; values are at most 1.
struct Pool {
  ConstTensor rows;
  Tensor scale;
};
Pool pool_of(OpRun& run, const std::string& name, const Size& s, const KvType& type) {
  const Shape shape{s.blocks(), s.kv_heads, s.block_size, s.width};
  if (type.codes == KvCodes::kNone) return {run.random(name, type.dtype, shape), {}};
  const double most = largest_code(type.codes);
  return {
      run.made(name, DType::kU8, shape, [&] { return codes_of(name, shape.numel(), type.codes); }),
      run.updated(name + "_scale", DType::kF32, {shape[0], shape[1], shape[2]}, exact(), 0.2 / most,
                  1.0 / most)};
}

OpCase attention_case(const Size& s, DType dtype, const KvType& type) {
  const auto body = [=](OpRun& run) {
    ConstTensor q = run.random(
        "q", dtype, {s.tokens(), s.packed ? s.heads + 2 * s.kv_heads : s.heads, s.width});
    if (s.packed) q = q.slice(1, 0, s.heads);
    std::vector<double> lengths(s.keys.begin(), s.keys.end());
    const ConstTensor table =
        run.values("block_table", DType::kI32, {s.sequences(), s.max_blocks}, table_of(s));
    const ConstTensor cu_q =
        run.values("cu_q", DType::kI32, {s.sequences() + 1}, sums_of(s.queries));
    const ConstTensor context = run.values("context_lens", DType::kI32, {s.sequences()}, lengths);
    PagedAttentionArgs args{.scale = 1.5 / std::sqrt(static_cast<double>(s.width)),
                            .window = s.window};
    for (int64_t queries : s.queries) args.max_queries = std::max(args.max_queries, queries);
    args.soft_cap = s.soft_cap;
    if (s.sinks) args.sinks = run.random("sinks", dtype, {s.heads}, -2.0, 6.0);
    if (s.bounded) args.max_context_len = *std::ranges::max_element(s.keys);
    const Tensor out = run.output("out", dtype, {s.tokens(), s.heads, s.width},
                                  whole(s.width + s.max_blocks * s.block_size));
    const Pool k = pool_of(run, "k", s, type), v = pool_of(run, "v", s, type);
    paged_attention(run.ctx, out, q, k.rows, v.rows, table, cu_q, context, args,
                    {k.scale, v.scale, type.codes});
  };
  const auto keys = static_cast<double>(std::accumulate(s.keys.begin(), s.keys.end(), int64_t{0}));
  return {.op = "paged_attention",
          .shape = name_of(s.name, type),
          .dtype = dtype,
          .body = body,
          .flops = 4.0 * keys * static_cast<double>(s.heads * s.width),
          .bytes = 2.0 * keys * static_cast<double>(s.kv_heads * row_bytes(type, s.width)),
          .large = s.large};
}

struct Rows {
  int64_t tokens, kv_heads, width, block_size;
  bool large = false;
};
constexpr int64_t kStep = 7;  // slots in random order

std::vector<double> slots_of(const Rows& s) {
  std::vector<double> slots;
  for (int64_t t = 0; t < s.tokens; ++t)
    slots.push_back(t % 5 == 3 ? -1.0 : static_cast<double>(kStep * (s.tokens - 1 - t)));
  return slots;
}

// Random rows; a few tokens contain zeros, tiny values, an infinity or a NaN.
ConstTensor hostile_rows(OpRun& run, const std::string& name, DType dtype, const Shape& shape) {
  const int64_t width = shape[1] * shape[2];
  std::vector<double> values = normals(name, shape.numel());
  for (int64_t t = 0; t < shape[0]; ++t) {
    double* const row = values.data() + t * width;
    if (t % 6 == 1) std::fill_n(row, width, 0.0);
    if (t % 6 == 2) std::fill_n(row, width, 0x1p-110);
    if (t == 4) row[width - 1] = -std::numeric_limits<double>::infinity();
    if (t == 5) row[width / 2] = std::numeric_limits<double>::quiet_NaN();
  }
  return run.values(name, dtype, shape, values);
}

// Codes and scales, bitwise.
OpCase codes_case(const Rows& s, DType dtype, const KvType& type) {
  const auto body = [=](OpRun& run) {
    const Shape shape{s.tokens, 2 * s.kv_heads, s.width};
    const Shape pool{kStep * s.tokens / s.block_size + 1, s.kv_heads, s.block_size, s.width};
    const Shape scale{pool[0], pool[1], pool[2]};
    const ConstTensor kv =
        s.large ? run.random("kv", dtype, shape) : hostile_rows(run, "kv", dtype, shape);
    const Tensor k_scale = run.updated("k_scale", DType::kF32, scale, exact());
    const Tensor v_scale = run.updated("v_scale", DType::kF32, scale, exact());
    paged_append(run.ctx, run.updated("k_pool", DType::kU8, pool, exact(), 0, 256),
                 run.updated("v_pool", DType::kU8, pool, exact(), 0, 256),
                 kv.slice(1, 0, s.kv_heads), kv.slice(1, s.kv_heads, 2 * s.kv_heads),
                 run.values("slots", DType::kI64, {s.tokens}, slots_of(s)),
                 {k_scale, v_scale, type.codes});
  };
  const int64_t bytes = s.width * dtype_size(dtype) + row_bytes(type, s.width);
  return {.op = "paged_append",
          .shape = name_of(
              concat("(", s.tokens, ", ", s.kv_heads, ", ", s.width, "), ", s.block_size), type),
          .dtype = dtype,
          .body = body,
          .bytes = 2.0 * static_cast<double>(s.tokens * s.kv_heads * bytes),
          .large = s.large};
}

OpCase rows_case(const Rows& s, DType dtype, bool append) {
  const auto body = [=](OpRun& run) {
    const int64_t blocks = kStep * s.tokens / s.block_size + 1;
    const Shape pool{blocks, s.kv_heads, s.block_size, s.width};
    const ConstTensor where = run.values("slots", DType::kI64, {s.tokens}, slots_of(s));
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
  const std::vector<Rows> rows = {
      {0, 2, 8, 16}, {1, 1, 1, 1}, {13, 3, 24, 16}, {9, 2, 7, 5}, {8192, 8, 128, 16, true}};
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Size& s : sizes()) cases.push_back(attention_case(s, dtype, {dtype}));
    for (const Rows& s : rows)
      for (bool append : {false, true}) cases.push_back(rows_case(s, dtype, append));
    if (dtype == DType::kF64) continue;
    for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kE4M3, KvCodes::kE5M2}) {
      const KvType type{DType::kU8, codes};
      for (const Size& s : sizes()) cases.push_back(attention_case(s, dtype, type));
      for (const Rows& s : rows) cases.push_back(codes_case(s, dtype, type));
    }
  }
  return cases;
}

}  // namespace trireme::test
