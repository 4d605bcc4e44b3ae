#include "engine/ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/attention/attention_sinks.h"
#include "engine/ops/backend/pick_kernel.h"

namespace trireme {
namespace {

// Sizes of one call, taken from q and k and checked against every other operand.
struct Sizes {
  int64_t tokens, keys, heads, kv_heads, width, padded_width, sequences;
};

Sizes check_inputs(const char* op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                   const ConstTensor& lse, int64_t sequences, const AttentionArgs& args) {
  TRIREME_CHECK(q.rank() == 3 && k.rank() == 3, op, ": q ", q.shape(), " and k ", k.shape(),
                " must be (T, H, D) and (Tk, Hkv, D)");
  Sizes s{q.size(0), k.size(0), q.size(1),
          k.size(1), q.size(2), round_up(q.size(2), cpu::kMaxFloatLanes),
          sequences};
  TRIREME_CHECK(s.kv_heads > 0 && s.heads > 0 && s.heads % s.kv_heads == 0, op, ": ", s.heads,
                " query heads cannot share ", s.kv_heads, " key/value heads");
  check_strided(op, "q", q, q.dtype(), {s.tokens, s.heads, s.width});
  check_strided(op, "k", k, q.dtype(), {s.keys, s.kv_heads, s.width});
  check_strided(op, "v", v, q.dtype(), {s.keys, s.kv_heads, s.width});
  check_operand(op, "lse", lse, sum_dtype(q.dtype()), {s.heads, s.tokens});
  TRIREME_CHECK(std::isfinite(args.scale) && args.soft_cap >= 0 && std::isfinite(args.soft_cap), op,
                ": scale ", args.scale, ", soft_cap ", args.soft_cap,
                ", expected finite numbers and soft_cap >= 0");
  TRIREME_CHECK(args.window >= 0, op, ": window is ", args.window, ", expected at least 0");
  TRIREME_CHECK(args.first_head >= 0 && args.total_heads >= 0 &&
                    (args.total_heads == 0 || args.first_head + s.heads <= args.total_heads),
                op, ": ", s.heads, " heads from ", args.first_head, " on exceed the ",
                args.total_heads, " of the layer");
  TRIREME_CHECK(args.dropout >= 0 && args.dropout < 1, op, ": dropout is ", args.dropout,
                ", expected 0 <= dropout < 1");
  if (args.dropout > 0) {
    check_operand(op, "global_index", args.global_index, DType::kI64, {s.tokens});
    TRIREME_CHECK(s.keys <= cpu::kMaxDropoutKeys, op, ": dropout numbers at most 2^24 keys, got ",
                  s.keys);
  }
  return s;
}

Sizes check_operands(const char* op, const ConstTensor& q, const ConstTensor& k,
                     const ConstTensor& v, const ConstTensor& out, const ConstTensor& lse,
                     const ConstTensor& cu_q, const ConstTensor& cu_k, const AttentionArgs& args) {
  const Sizes s = check_inputs(op, q, k, v, lse, cu_q.numel() - 1, args);
  check_strided(op, "out", out, q.dtype(), q.shape());
  TRIREME_CHECK(args.window == 0 || args.causal, op, ": window ", args.window,
                " needs causal attention");
  TRIREME_CHECK(s.sequences >= 0, op, ": cu_q is empty, expected at least the offset 0");
  for (const ConstTensor* cu : {&cu_q, &cu_k})
    check_operand(op, "cu", *cu, DType::kI32, {s.sequences + 1});
  return s;
}

Sizes check_segmented(const char* op, const ConstTensor& q, const ConstTensor& k,
                      const ConstTensor& v, const ConstTensor& lse,
                      const AttentionSegments& segments, const AttentionArgs& args) {
  const int64_t count = segments.list.rank() == 2 ? segments.list.size(0) : -1;
  check_operand(op, "segments", segments.list, DType::kI32, {count, kSegmentFields});
  const Sizes s = check_inputs(op, q, k, v, lse, count, args);
  TRIREME_CHECK(!args.sinks.present(), op, ": sinks are not supported with segments");
  if (args.dropout > 0)
    check_operand(op, "key_position", segments.key_position, DType::kI32, {s.keys});
  return s;
}

// Offsets are data: they can be read only in a real run.
void check_offsets(const char* op, const char* operand, const ConstTensor& cu, int64_t limit) {
  const int32_t* at = cu.as<int32_t>();
  for (int64_t n = 0; n < cu.numel(); ++n) {
    const int32_t before = n == 0 ? 0 : at[n - 1];
    TRIREME_CHECK(n == 0 ? at[n] == 0 : at[n] >= before, op, ": ", operand, "[", n, "] = ", at[n],
                  " after ", before);
  }
  TRIREME_CHECK(at[cu.numel() - 1] <= limit, op, ": ", operand, " ends at ", at[cu.numel() - 1],
                " but there are ", limit, " rows");
}

// Values on a GPU are not checked: the host would have to wait for them.
void check_values(const Ctx& ctx, const char* op, const ConstTensor& cu_q, const ConstTensor& cu_k,
                  const Sizes& s, const AttentionArgs& args) {
  const int64_t uniform_length = args.uniform_length;
  const int64_t rows = s.sequences * uniform_length;
  TRIREME_CHECK(uniform_length == 0 || (uniform_length > 0 && rows == s.tokens && rows == s.keys),
                op, ": ", s.sequences, " sequences of ", uniform_length, " are not ", s.tokens,
                " queries and ", s.keys, " keys");
  if (ctx.gpu != nullptr) return;
  check_offsets(op, "cu_q", cu_q, s.tokens);
  check_offsets(op, "cu_k", cu_k, s.keys);
  const auto *q = cu_q.as<int32_t>(), *k = cu_k.as<int32_t>();
  for (int64_t n = 0; args.max_seqlen > 0 && n < s.sequences; ++n)
    TRIREME_CHECK(q[n + 1] - q[n] <= args.max_seqlen && q[n + 1] == k[n + 1], op, ": sequence ", n,
                  " has ", q[n + 1] - q[n], " queries and ends at query ", q[n + 1], " and key ",
                  k[n + 1], ", max_seqlen is ", args.max_seqlen);
  if (uniform_length == 0) return;
  for (int64_t n = 0; n < s.sequences; ++n)
    for (const ConstTensor* cu : {&cu_q, &cu_k})
      TRIREME_CHECK(cu->as<int32_t>()[n] == n * uniform_length, op, ": sequence ", n, " begins at ",
                    cu->as<int32_t>()[n], ", uniform_length is ", uniform_length);
}

void check_segment_values(const Ctx& ctx, const char* op, const AttentionSegments& segments,
                          const Sizes& s, double dropout) {
  if (ctx.gpu != nullptr) return;
  const int32_t* at = segments.list.as<int32_t>();
  int64_t query = 0, key = 0;
  for (int64_t n = 0; n < s.sequences; ++n, at += kSegmentFields) {
    TRIREME_CHECK(query <= at[0] && at[0] < at[1] && at[1] <= s.tokens, op, ": segment ", n,
                  " has queries ", at[0], " to ", at[1], ", expected a range within ", query,
                  " to ", s.tokens);
    TRIREME_CHECK(key <= at[2] && at[2] < at[3] && at[3] <= s.keys, op, ": segment ", n,
                  " has keys ", at[2], " to ", at[3], ", expected a range within ", key, " to ",
                  s.keys);
    query = at[1];
    key = at[3];
  }
  if (dropout == 0) return;
  for (int64_t j = 0; j < s.keys; ++j) {
    const int32_t position = segments.key_position.as<int32_t>()[j];
    TRIREME_CHECK(position >= 0 && position < cpu::kMaxDropoutKeys, op, ": key position ", position,
                  " is not in [0, 2^24)");
  }
}

template <class T>
cpu::HeadView<const T> view_of(const ConstTensor& t) {
  return {t.as<T>(), t.stride(0), t.stride(1)};
}
template <class T>
cpu::HeadView<T> view_of(const Tensor& t) {
  return {t.as<T>(), t.stride(0), t.stride(1)};
}

// On the CPU: scratch per thread and the numbers of work items; on a GPU: the backward's products
// dout . out, if `rows` is set.
struct Scratch {
  Activation work, items;
  int64_t per_thread = 0;

  Scratch(Ctx& ctx, const Sizes& s, DType dtype, int64_t elements, bool rows) {
    const DType compute = sum_dtype(dtype);
    if (ctx.gpu != nullptr) {
      TRIREME_CHECK(s.width <= cuda::kMaxHeadDim, "attention on a GPU: heads of ", s.width,
                    " elements, at most ", cuda::kMaxHeadDim);
      if (rows) work = ctx.allocate("attention delta", compute, {s.heads, s.tokens});
      return;
    }
    per_thread = elements;
    work = ctx.allocate("attention scratch", compute, {ctx.threads, elements});
    // Sized by the tokens, not by the current number of documents: a plan is valid for any packing.
    const int64_t most = std::max(s.tokens, s.sequences);
    items = ctx.allocate("attention items", DType::kI64, {2 * (most + 1)});
  }
};

template <class T>
void fill_common(cpu::Attention<T>& a, const Sizes& s, const Scratch& scratch, const ConstTensor& q,
                 const ConstTensor& k, const ConstTensor& v, const AttentionArgs& args) {
  using C = compute_t<T>;
  a.q = view_of<T>(q);
  a.k = view_of<T>(k);
  a.v = view_of<T>(v);
  a.sequences = s.sequences;
  a.tokens = s.tokens;
  a.keys = s.keys;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.width = s.width;
  a.uniform_length = args.uniform_length;
  a.max_seqlen = args.max_seqlen;
  a.keep_lse = args.keep_lse;
  a.scale = static_cast<C>(args.scale);
  a.cap = static_cast<C>(args.soft_cap * std::numbers::log2e);
  a.causal = args.causal;
  a.window = args.window;
  // uniform(word) >= p in exact arithmetic: uniform is a multiple of 2^-24.
  a.drop_threshold = static_cast<uint32_t>(std::ceil(args.dropout * 0x1p24));
  a.keep_scale = static_cast<C>(1.0 / (1.0 - args.dropout));
  a.key = args.key;
  a.global_index = args.dropout > 0 ? args.global_index.as<int64_t>() : nullptr;
  a.first_head = args.first_head;
  a.total_heads = args.total_heads > 0 ? args.total_heads : args.first_head + s.heads;
  a.scratch = scratch.work.present() ? scratch.work->as<C>() : nullptr;
  a.scratch_per_thread = scratch.per_thread;
  a.items = scratch.items.present() ? scratch.items->as<int64_t>() : nullptr;
}

template <class T>
void fill_sequences(cpu::Attention<T>& a, const ConstTensor& cu_q, const ConstTensor& cu_k) {
  a.by_segments = false;
  a.cu_q = cu_q.as<int32_t>();
  a.cu_k = cu_k.as<int32_t>();
  a.key_position = nullptr;
}

template <class T>
void fill_segments(cpu::Attention<T>& a, const AttentionSegments& segments, double dropout) {
  a.by_segments = true;
  a.clear = !segments.accumulate;
  a.segments = segments.list.as<int32_t>();
  a.key_position = dropout > 0 ? segments.key_position.as<int32_t>() : nullptr;
}

// Longest range of keys whose gradients one thread sums.
int64_t owned_keys(const Sizes& s) {
  return std::clamp(round_up(s.keys, cpu::kAttentionBlock), cpu::kAttentionBlock,
                    cpu::kMaxOwnedKeys);
}

}  // namespace

void attention_forward(Ctx& ctx, const Tensor& out, const Tensor& lse, const ConstTensor& q,
                       const ConstTensor& k, const ConstTensor& v, const ConstTensor& cu_q,
                       const ConstTensor& cu_k, const AttentionArgs& args) {
  const char* op = "attention_forward";
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  const Sizes s = check_operands(op, q, k, v, out, lse, cu_q, cu_k, args);
  TRIREME_CHECK(args.keep_lse || !args.sinks.present(), op, ": sinks need keep_lse");
  const Scratch scratch(ctx, s, q.dtype(), cpu::attention_forward_scratch(s.padded_width), false);
  if (ctx.planning() && ctx.gpu == nullptr) return;
  if (!ctx.planning()) check_values(ctx, op, cu_q, cu_k, s, args);
  dispatch_float(op, q.dtype(), [&]<class T>() {
    cpu::AttentionForward<T> a{};
    fill_common(a, s, scratch, q, k, v, args);
    fill_sequences(a, cu_q, cu_k);
    a.out = view_of<T>(out);
    a.lse = lse.as<compute_t<T>>();
    if (ctx.planning()) return cuda::plan_attention(*ctx.gpu, a);
    if (ctx.gpu != nullptr) return cuda::attention_forward<T>(*ctx.gpu, a);
    TRIREME_KERNEL(attention_forward<T>)(a, ctx.threads);
  });
  if (args.sinks.present()) attention_sinks_forward(ctx, out, lse, args.sinks);
}

void attention_backward(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                        const ConstTensor& dout, const ConstTensor& out, const ConstTensor& lse,
                        const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                        const ConstTensor& cu_q, const ConstTensor& cu_k,
                        const AttentionArgs& args) {
  const char* op = "attention_backward";
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  const Sizes s = check_operands(op, q, k, v, out, lse, cu_q, cu_k, args);
  check_strided(op, "dout", dout, q.dtype(), q.shape());
  check_strided(op, "dq", dq, q.dtype(), q.shape());
  check_strided(op, "dk", dk, q.dtype(), k.shape());
  check_strided(op, "dv", dv, q.dtype(), k.shape());
  if (args.sinks.present())
    attention_sinks_backward(ctx, args.d_sinks, dout, out, lse, args.sinks, args.accumulate_sinks);
  const int64_t owned = owned_keys(s);
  const Scratch scratch(ctx, s, q.dtype(), cpu::attention_backward_scratch(s.padded_width, owned),
                        true);
  if (ctx.planning() && ctx.gpu == nullptr) return;
  if (!ctx.planning()) check_values(ctx, op, cu_q, cu_k, s, args);
  dispatch_float(op, q.dtype(), [&]<class T>() {
    cpu::AttentionBackward<T> a{};
    fill_common(a, s, scratch, q, k, v, args);
    fill_sequences(a, cu_q, cu_k);
    a.dq = view_of<T>(dq);
    a.dk = view_of<T>(dk);
    a.dv = view_of<T>(dv);
    a.dout = view_of<T>(dout);
    a.out = view_of<T>(out);
    a.lse = lse.as<compute_t<T>>();
    a.owned_keys = owned;
    if (ctx.planning()) return cuda::plan_attention(*ctx.gpu, a);
    if (ctx.gpu != nullptr) return cuda::attention_backward<T>(*ctx.gpu, a);
    TRIREME_KERNEL(attention_backward<T>)(a, ctx.threads);
  });
}

void attention_segments_forward(Ctx& ctx, const Tensor& out, const Tensor& lse,
                                const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                                const AttentionSegments& segments, const AttentionArgs& args) {
  const char* op = "attention_segments_forward";
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  const Sizes s = check_segmented(op, q, k, v, lse, segments, args);
  check_strided(op, "out", out, sum_dtype(q.dtype()), q.shape());
  const Scratch scratch(ctx, s, q.dtype(), cpu::attention_forward_scratch(s.padded_width), false);
  if (ctx.planning()) return;
  check_segment_values(ctx, op, segments, s, args.dropout);
  dispatch_float(op, q.dtype(), [&]<class T>() {
    cpu::AttentionForward<T> a{};
    fill_common(a, s, scratch, q, k, v, args);
    fill_segments(a, segments, args.dropout);
    a.out_sum = view_of<compute_t<T>>(out);
    a.lse = lse.as<compute_t<T>>();
    if (ctx.gpu != nullptr) return cuda::attention_forward<T>(*ctx.gpu, a);
    TRIREME_KERNEL(attention_forward<T>)(a, ctx.threads);
  });
}

void attention_segments_backward(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                 const ConstTensor& dout, const ConstTensor& out,
                                 const ConstTensor& lse, const ConstTensor& q, const ConstTensor& k,
                                 const ConstTensor& v, const AttentionSegments& segments,
                                 const AttentionArgs& args) {
  const char* op = "attention_segments_backward";
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  const Sizes s = check_segmented(op, q, k, v, lse, segments, args);
  const DType sum = sum_dtype(q.dtype());
  check_strided(op, "out", out, q.dtype(), q.shape());
  check_strided(op, "dout", dout, q.dtype(), q.shape());
  check_strided(op, "dq", dq, sum, q.shape());
  check_strided(op, "dk", dk, sum, k.shape());
  check_strided(op, "dv", dv, sum, k.shape());
  const int64_t owned = owned_keys(s);
  const Scratch scratch(ctx, s, q.dtype(), cpu::attention_backward_scratch(s.padded_width, owned),
                        true);
  if (ctx.planning()) return;
  check_segment_values(ctx, op, segments, s, args.dropout);
  dispatch_float(op, q.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    cpu::AttentionBackward<T> a{};
    fill_common(a, s, scratch, q, k, v, args);
    fill_segments(a, segments, args.dropout);
    a.dq_sum = view_of<C>(dq);
    a.dk_sum = view_of<C>(dk);
    a.dv_sum = view_of<C>(dv);
    a.dout = view_of<T>(dout);
    a.out = view_of<T>(out);
    a.lse = lse.as<C>();
    a.owned_keys = owned;
    if (ctx.gpu != nullptr) return cuda::attention_backward<T>(*ctx.gpu, a);
    TRIREME_KERNEL(attention_backward<T>)(a, ctx.threads);
  });
}

}  // namespace trireme
