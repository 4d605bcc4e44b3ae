#include <cmath>

#include "engine/ops/attention/attention.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  std::string name;
  std::vector<double> cu_q, cu_k;
  int64_t heads, kv_heads, width;
  bool causal = true;
  int64_t window = 0;
  double dropout = 0;
  int64_t padding = 0;  // rows after the last sequence
  bool packed = false;  // q, k, v and their gradients are slices of one (T, H + 2 Hkv, D) tensor
  bool large = false;
  bool uniform = false;  // the host knows that all sequences have the length of the first
  double soft_cap = 0;

  int64_t tokens() const { return static_cast<int64_t>(cu_q.back()) + padding; }
  int64_t keys() const { return static_cast<int64_t>(cu_k.back()) + padding; }
  int64_t sequences() const { return std::ssize(cu_q) - 1; }
  // Pairs of a query and a key that it attends to.
  double pairs() const {
    double count = 0;
    for (size_t n = 0; n + 1 < cu_q.size(); ++n) {
      const double queries = cu_q[n + 1] - cu_q[n], keys = cu_k[n + 1] - cu_k[n];
      for (double i = 0; i < queries; ++i) {
        const double seen = causal ? std::max(0.0, i + 1 + keys - queries) : keys;
        count += window > 0 ? std::min(seen, static_cast<double>(window)) : seen;
      }
    }
    return count;
  }
};

Size self(std::string name, std::vector<double> cu, int64_t heads, int64_t kv_heads,
          int64_t width) {
  return {std::move(name), cu, cu, heads, kv_heads, width};
}

std::vector<Size> sizes() {
  std::vector<Size> out;
  out.push_back(self("one token", {0, 1}, 1, 1, 1));
  out.push_back(self("no sequence", {0}, 2, 1, 8));
  out.back().padding = 3;
  out.push_back(self("odd width", {0, 3, 3, 40}, 2, 2, 7));
  out.push_back(self("packed of many", {0, 5, 6, 70, 135}, 4, 2, 64));
  out.back().packed = true;
  out.back().padding = 5;
  out.push_back(self("wide heads", {0, 33}, 2, 1, 200));
  out.push_back(self("width of 128", {0, 17, 90}, 3, 1, 128));
  out.push_back(self("width of 80", {0, 70}, 2, 2, 80));
  out.push_back(self("window", {0, 20, 130}, 2, 1, 64));
  out.back().window = 19;
  out.push_back(self("not causal", {0, 9, 75}, 2, 2, 24));
  out.back().causal = false;
  out.push_back(self("dropout", {0, 30, 100}, 2, 1, 64));
  out.back().dropout = 0.3;
  // More keys than queries, fewer (some queries have no keys), no keys at all.
  out.push_back({"other keys", {0, 4, 40, 45}, {0, 70, 90, 90}, 4, 2, 64});
  out.back().dropout = 0.1;
  out.push_back(self("of one length", {0, 72, 144}, 4, 2, 64));
  out.back().packed = true;
  out.back().uniform = true;
  for (const int64_t width : {64, 80, 200}) {
    out.push_back(self(concat("soft cap, width of ", width), {0, 20, 90}, 2, 1, width));
    out.back().soft_cap = 1.5;
    out.back().window = width == 80 ? 30 : 0;
  }
  for (int64_t width : {64, 128}) {
    std::vector<double> cu = {0};
    for (int n = 0; n < 4; ++n) cu.push_back(cu.back() + 4096);
    out.push_back(self(concat("4 of 4096, width ", width), cu, 32, 8, width));
    out.back().packed = true;
    out.back().large = true;
    out.back().uniform = true;
  }
  std::vector<double> documents = {0};  // lengths from 300 to 1260 tokens
  for (int n = 0; n < 21; ++n) documents.push_back(documents.back() + 300 + n * 48);
  out.push_back(self("21 documents of 300 to 1260", documents, 32, 8, 128));
  out.back().packed = true;
  out.back().large = true;
  return out;
}

AttentionArgs args_of(OpRun& run, const Size& s) {
  AttentionArgs args;
  args.scale = 1.5 / std::sqrt(static_cast<double>(s.width));
  args.causal = s.causal;
  args.window = s.window;
  args.soft_cap = s.soft_cap;
  args.dropout = s.dropout;
  if (s.uniform) args.uniform_length = static_cast<int64_t>(s.cu_q[1]);
  if (s.cu_q == s.cu_k)  // cuDNN may then compute it
    for (size_t n = 1; n < s.cu_q.size(); ++n)
      args.max_seqlen = std::max(args.max_seqlen, static_cast<int64_t>(s.cu_q[n] - s.cu_q[n - 1]));
  args.key = {7, 11};
  if (s.dropout > 0) {
    args.global_index = run.integers("global_index", DType::kI64, {s.tokens()}, 0, 1 << 20);
    args.first_head = 1;
    args.total_heads = s.heads + 2;
  }
  return args;
}

struct Inputs {
  ConstTensor q, k, v, cu_q, cu_k;
  Inputs(OpRun& run, const Size& s, DType dtype) {
    if (s.packed) {
      const ConstTensor qkv =
          run.random("qkv", dtype, {s.tokens(), s.heads + 2 * s.kv_heads, s.width});
      q = qkv.slice(1, 0, s.heads);
      k = qkv.slice(1, s.heads, s.heads + s.kv_heads);
      v = qkv.slice(1, s.heads + s.kv_heads, qkv.size(1));
    } else {
      q = run.random("q", dtype, {s.tokens(), s.heads, s.width});
      k = run.random("k", dtype, {s.keys(), s.kv_heads, s.width});
      v = run.random("v", dtype, {s.keys(), s.kv_heads, s.width});
    }
    cu_q = run.values("cu_q", DType::kI32, {s.sequences() + 1}, s.cu_q);
    cu_k = run.values("cu_k", DType::kI32, {s.sequences() + 1}, s.cu_k);
  }
};

// Terms of an output: the products over D, then the sum over the keys.
Close close_to(const Size& s) { return whole(s.width + s.keys()); }

// Bytes of the operands, each counted once.
double moved(const Size& s, DType dtype, int64_t of_queries, int64_t of_keys) {
  return static_cast<double>((of_queries * s.tokens() * s.heads + of_keys * s.keys() * s.kv_heads) *
                             s.width * dtype_size(dtype));
}

OpCase forward_case(const Size& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Inputs in(run, s, dtype);
    const Shape shape{s.tokens(), s.heads, s.width};
    const Tensor out = run.output("out", dtype, shape, close_to(s));
    const Tensor lse =
        run.output("lse", sum_dtype(dtype), {s.heads, s.tokens()}, whole(s.width + s.keys()));
    attention_forward(run.ctx, out, lse, in.q, in.k, in.v, in.cu_q, in.cu_k, args_of(run, s));
  };
  return {.op = "attention_forward",
          .shape = s.name,
          .dtype = dtype,
          .body = body,
          .flops = 4.0 * s.pairs() * static_cast<double>(s.heads * s.width),
          .bytes = moved(s, dtype, 2, 2),
          .large = s.large};
}

OpCase backward_case(const Size& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Inputs in(run, s, dtype);
    const Shape queries{s.tokens(), s.heads, s.width}, keys{s.keys(), s.kv_heads, s.width};
    const DType sums = sum_dtype(dtype);
    const Tensor out = run.output("out", dtype, queries, close_to(s));
    const Tensor lse = run.output("lse", sums, {s.heads, s.tokens()}, whole(s.width + s.keys()));
    const AttentionArgs args = args_of(run, s);
    attention_forward(run.ctx, out, lse, in.q, in.k, in.v, in.cu_q, in.cu_k, args);
    const ConstTensor dout = run.random("dout", dtype, queries);
    Tensor dq, dk, dv;
    if (s.packed) {
      const Tensor d = run.output("dqkv", dtype, {s.tokens(), s.heads + 2 * s.kv_heads, s.width},
                                  whole(4 * (s.width + s.keys())));
      dq = d.slice(1, 0, s.heads);
      dk = d.slice(1, s.heads, s.heads + s.kv_heads);
      dv = d.slice(1, s.heads + s.kv_heads, d.size(1));
    } else {
      dq = run.output("dq", dtype, queries, whole(4 * (s.width + s.keys())));
      dk = run.output("dk", dtype, keys, whole(4 * (s.width + s.keys())));
      dv = run.output("dv", dtype, keys, whole(4 * (s.width + s.keys())));
    }
    attention_backward(run.ctx, dq, dk, dv, dout, out, lse, in.q, in.k, in.v, in.cu_q, in.cu_k,
                       args);
  };
  return {.op = "attention_backward",
          .shape = s.name,
          .dtype = dtype,
          .body = body,  // with the forward, whose results it needs: 14 products of pairs and D
          .flops = 14.0 * s.pairs() * static_cast<double>(s.heads * s.width),
          .bytes = moved(s, dtype, 6, 6),
          .large = s.large};
}

// --- segments ---

struct Segmented {
  std::string name;
  int64_t tokens, keys, heads, kv_heads, width;
  std::vector<double> first, second;  // segments of two calls; the second accumulates
  int64_t window = 0;
  double dropout = 0;
  double soft_cap = 0;
};

std::vector<Segmented> segmented() {
  constexpr double kWhole = kWholeSegment;
  return {
      // Gaps between segments; keys later than the queries.
      {"two blocks of keys",
       50,
       60,
       2,
       1,
       64,
       {0, 20, 0, 25, kWhole, 22, 50, 30, 45, 5},
       {3, 40, 25, 30, 2, 40, 49, 50, 60, kWhole}},
      {"nothing first", 30, 30, 4, 2, 24, {}, {0, 30, 0, 30, 0}},
      {"window and dropout",
       70,
       80,
       2,
       2,
       128,
       {0, 33, 0, 40, 7, 33, 70, 40, 60, 10},
       {0, 60, 60, 80, 15},
       12,
       0.2},
      {"soft cap", 30, 30, 4, 2, 64, {0, 30, 0, 15, kWhole}, {0, 30, 15, 30, -15}, 0, 0, 1.5},
  };
}

AttentionArgs args_of(OpRun& run, const Segmented& s) {
  AttentionArgs args;
  args.scale = 1.5 / std::sqrt(static_cast<double>(s.width));
  args.window = s.window;
  args.soft_cap = s.soft_cap;
  args.dropout = s.dropout;
  args.key = {7, 11};
  if (s.dropout > 0)
    args.global_index = run.integers("global_index", DType::kI64, {s.tokens}, 0, 1 << 20);
  return args;
}

AttentionSegments list_of(OpRun& run, const Segmented& s, bool second) {
  const std::vector<double>& fields = second ? s.second : s.first;
  AttentionSegments out;
  out.list = run.values(second ? "second" : "first", DType::kI32,
                        {std::ssize(fields) / kSegmentFields, kSegmentFields}, fields);
  out.key_position = run.integers("key_position", DType::kI32, {s.keys}, 0, 1 << 24);
  out.accumulate = second;
  return out;
}

OpCase segmented_case(const Segmented& s, DType dtype, bool backward) {
  const auto body = [=](OpRun& run) {
    const DType sums = sum_dtype(dtype);
    const Shape queries{s.tokens, s.heads, s.width}, keys{s.keys, s.kv_heads, s.width};
    const ConstTensor q = run.random("q", dtype, queries), k = run.random("k", dtype, keys);
    const ConstTensor v = run.random("v", dtype, keys);
    const Close close = whole(4 * (s.width + s.keys));
    // On tensor cores the weights of 16-bit values are rounded to that type, but their sum is not.
    Close rounded = close;
    if (dtype_size(dtype) == 2)
      rounded = {.of = Close::Of::kTensor, .terms = 0, .accumulate = dtype};
    const AttentionArgs args = args_of(run, s);
    if (!backward) {
      const Tensor out = run.output("out", sums, queries, rounded);
      const Tensor lse = run.output("lse", sums, {s.heads, s.tokens}, close);
      for (bool second : {false, true})
        attention_segments_forward(run.ctx, out, lse, q, k, v, list_of(run, s, second), args);
      return;
    }
    const ConstTensor out = run.random("out", dtype, queries);
    const ConstTensor lse = run.random("lse", sums, {s.heads, s.tokens}, 2.0, 3.0);
    const ConstTensor dout = run.random("dout", dtype, queries);
    const Tensor dq = run.output("dq", sums, queries, rounded);
    const Tensor dk = run.output("dk", sums, keys, rounded);
    const Tensor dv = run.output("dv", sums, keys, rounded);
    for (bool second : {false, true})
      attention_segments_backward(run.ctx, dq, dk, dv, dout, out, lse, q, k, v,
                                  list_of(run, s, second), args);
  };
  return {.op = backward ? "attention_segments_backward" : "attention_segments_forward",
          .shape = s.name,
          .dtype = dtype,
          .body = body};
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Size& s : sizes()) {
      cases.push_back(forward_case(s, dtype));
      cases.push_back(backward_case(s, dtype));
    }
    for (const Segmented& s : segmented())
      for (bool backward : {false, true}) cases.push_back(segmented_case(s, dtype, backward));
  }
  return cases;
}

}  // namespace trireme::test
