// Causal multi-head attention over packed sequences, exact, blocked with an online softmax (Milakov
// & Gimelshein 2018; FlashAttention, Dao et al. 2022): memory is linear in the sequence length.
//
//   out[t, h] = sum_s softmax_s(scale * q[t, h] . k[s, h']) v[s, h'],   h' = h / (H / Hkv)
// over the keys s of t's sequence that t may see. Sequence n holds queries cu_q[n] .. cu_q[n+1] and
// keys cu_k[n] .. cu_k[n+1]; its last query sees its last key, so query i of Lq sees keys j <= i +
// Lk - Lq. window > 0 keeps only the last `window` of those. causal = false: every query sees every
// key of its sequence (no window then).
//
//   q, out, dq, dout  (T, H, D)      unit stride in D, any stride in T and H (slices of packed QKV)
//   k, v, dk, dv      (Tk, Hkv, D)   likewise; H is a multiple of Hkv
//   lse               (H, T)         float32 (float64 for float64): log-sum-exp of the scaled
//                                    scores
//   cu_q, cu_k        (N + 1)        int32, non-decreasing, from 0; at most T and Tk. Rows past the
//                                    last offset are padding: out, dq, dk and dv are zeroed there,
//                                    lse is -inf.
// One float dtype for q, k, v, out and gradients; sums are float32 (float64 for float64). A query
// that sees no key gives out = 0 and lse = -inf.
// Dropout of the probabilities: the mask of (query, key) in head h is word
//   (global_index[t] * total_heads + first_head + h) * 2^24 + (position of the key in its sequence)
// of args.key (engine/core/random.h); if uniform_from_word(word) >= dropout the probability is kept
// and divided by 1 - dropout. A call with dropout has at most 2^24 keys. Tensor-parallel ranks pass
// first_head and total_heads, so that the masks do not depend on the split.
//
// On the CPU a result has the same bits for any number of threads and for any other sequences
// packed with it. On a GPU the kernel, and with it the rounding, may depend on the batch.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

struct AttentionArgs {
  double scale = 1.0;  // usually 1 / sqrt(D)
  // Soft cap c > 0 of the scaled scores (Gemma Team 2024, "Gemma 2"): softmax_s(c tanh(score / c)).
  // 0: none.
  double soft_cap = 0.0;
  bool causal = true;
  int64_t window = 0;  // 0: unlimited
  double dropout = 0.0;
  RandomKey key;
  ConstTensor global_index;  // (T) int64, global token index of each query; for dropout
  int64_t first_head = 0;    // number of the call's head 0 among all heads of the layer
  int64_t total_heads = 0;   // number of heads of the layer; 0: first_head + H
  // Length of every sequence, in queries and in keys, if the host knows that all are equal and no
  // row is padding; a GPU may then use cuDNN. 0: unknown. Ignored for segments.
  int64_t uniform_length = 0;
  // Upper bound of the sequence lengths, for lengths that may differ; only if cu_q and cu_k are
  // equal. 0: unknown. Ignored for segments.
  int64_t max_seqlen = 0;
  bool keep_lse = true;  // false: lse is not needed and may be left undefined (inference, no sinks)
  // (H), q's dtype: a logit per head that takes part in its softmax, with a value of 0
  // (engine/ops/attention/attention_sinks.h). Absent: none. Error with segments, whose results are
  // not final.
  ConstTensor sinks = {};
  // (H) float32 (float64 for float64), with sinks: backward overwrites it, or adds to it if
  // accumulate_sinks.
  Tensor d_sinks = {};
  bool accumulate_sinks = false;
};

void attention_forward(Ctx& ctx, const Tensor& out, const Tensor& lse, const ConstTensor& q,
                       const ConstTensor& k, const ConstTensor& v, const ConstTensor& cu_q,
                       const ConstTensor& cu_k, const AttentionArgs& args);

// Overwrites dq, dk and dv; none may alias an input. out and lse are the results of
// attention_forward(). On the CPU the gradients have the same bits for any number of threads; on a
// GPU, equal calls give equal bits only if Context::deterministic.
void attention_backward(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                        const ConstTensor& dout, const ConstTensor& out, const ConstTensor& lse,
                        const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                        const ConstTensor& cu_q, const ConstTensor& cu_k,
                        const AttentionArgs& args);

// --- segments -----------------------------------------------------------------------------------
//
// The same for queries and keys that are not whole sequences: parts of documents, distributed over
// ranks. Segment n lets queries q_begin .. q_end see keys k_begin .. k_end: query q_begin + i sees
// key k_begin + j if j <= i + diagonal (and j > i + diagonal - window, with a window). A call with
// `accumulate` adds its segments to the results of earlier calls, so that blocks of keys may be
// processed one at a time, and leaves queries and keys in no segment unchanged. Without it all
// results are cleared first.
struct AttentionSegment {
  int32_t q_begin, q_end, k_begin, k_end, diagonal;
};
// A diagonal that makes all keys of a segment visible to all its queries, if there is no window.
inline constexpr int32_t kWholeSegment = 1 << 30;
inline constexpr int64_t kSegmentFields = 5;

struct AttentionSegments {
  // (N, kSegmentFields) int32: the fields of each AttentionSegment. Both the query ranges and the
  // key ranges ascend, none is empty, and they do not overlap: hence N <= min(T, Tk).
  ConstTensor list;
  ConstTensor key_position;  // (Tk) int32: position of each key in its sequence; for dropout
  bool accumulate = false;
};

// (out, lse) = softmax-weighted mean over the keys of this call and of earlier ones: the online
// softmax continues from out and lse.
//   out  (T, H, D)  float32 (float64 for float64) for any dtype of q: the caller rounds it, once
// All other operands as above, but args.causal is ignored: the diagonals determine it.
void attention_segments_forward(Ctx& ctx, const Tensor& out, const Tensor& lse,
                                const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                                const AttentionSegments& segments, const AttentionArgs& args);

// Adds the contributions of this call's pairs to dq (T, H, D), dk and dv (Tk, Hkv, D), all float32
// (float64 for float64). out (q's dtype) and lse are those of all calls together.
void attention_segments_backward(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                 const ConstTensor& dout, const ConstTensor& out,
                                 const ConstTensor& lse, const ConstTensor& q, const ConstTensor& k,
                                 const ConstTensor& v, const AttentionSegments& segments,
                                 const AttentionArgs& args);

}  // namespace trireme
