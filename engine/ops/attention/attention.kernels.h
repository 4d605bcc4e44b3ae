// Kernels of causal attention (engine/ops/attention/attention.h has the formulas and shapes).
//
// The CPU kernels iterate over blocks of kAttentionBlock queries and kAttentionBlock keys with the
// scores transposed, (keys, queries). The products for scores, out and dq then broadcast one
// element of K or V at a time and work on whole vectors of queries, so K and V are never
// transposed, and the softmax needs no sums across lanes. (Sequences of few queries, kFewQueries,
// are an exception.)
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/core/random.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

inline constexpr int64_t kAttentionBlock = 64;
// float32 lanes of the widest vector (AVX-512). The rows of scratch are padded to a multiple of it,
// so that the size of scratch is the same for every instruction set.
inline constexpr int64_t kMaxFloatLanes = 16;
// Maximum number of keys of a sequence whose key and value gradients one thread sums in its own
// scratch.
inline constexpr int64_t kMaxOwnedKeys = 8192;
// A dropout word's number has 24 bits for the key's position.
inline constexpr int64_t kMaxDropoutKeys = int64_t{1} << 24;
// Maximum number of queries of a sequence for the forward path that reads each key once for all
// heads that share it (decoding). Not with segments or dropout, nor if queries * (heads that share
// a key) exceeds kAttentionBlock.
inline constexpr int64_t kFewQueries = 4;

// A (T, heads, D) operand: element (t, h, d) is data[t * row + h * head + d]. The strides `row` and
// `head` are in elements.
template <class T>
struct HeadView {
  T* data = nullptr;
  int64_t row = 0, head = 0;
};

template <class T>
struct Attention {
  using C = compute_t<T>;
  HeadView<const T> q, k, v;
  const int32_t *cu_q, *cu_k;  // (sequences + 1)
  // by_segments: `segments`, (sequences, kSegmentFields), replaces cu_q and cu_k, and the `*_sum`
  // views are the results. These are first set to 0, and lse to -inf, if `clear`; else the results
  // of earlier calls are continued.
  bool by_segments, clear;
  const int32_t* segments;
  int64_t sequences, tokens, keys, heads, kv_heads, width;  // N, T, Tk, H, Hkv, D
  // Length of all sequences, in queries and keys; 0: they differ or are unknown.
  int64_t uniform_length;
  // Upper bound of the sequence lengths, if each has as many keys as queries; 0: unknown.
  int64_t max_seqlen;
  bool keep_lse;  // AttentionArgs
  C scale;
  C cap;  // soft cap of base-2 scores: soft_cap * log2(e); 0: none
  bool causal;
  int64_t window;  // 0: unlimited
  // Dropout: a probability is kept, times keep_scale, if the upper 24 bits of its word are at least
  // drop_threshold.
  uint32_t drop_threshold;
  C keep_scale;
  RandomKey key;
  const int64_t* global_index;  // (tokens)
  int64_t first_head, total_heads;
  const int32_t* key_position;  // (keys); null: keys count from the start of their sequence
  // Scratch of the CPU: scratch_per_thread elements for each thread, and room for
  // 2 * (sequences + 1) offsets of work items.
  C* scratch;
  int64_t scratch_per_thread;
  int64_t* items;
};

template <class T>
struct AttentionForward : Attention<T> {
  HeadView<T> out;
  HeadView<compute_t<T>> out_sum;  // with segments, instead of out
  compute_t<T>* lse;               // (heads, tokens)
};

template <class T>
struct AttentionBackward : Attention<T> {
  HeadView<T> dq, dk, dv;
  HeadView<compute_t<T>> dq_sum, dk_sum, dv_sum;  // with segments, instead of these
  HeadView<const T> dout, out;
  const compute_t<T>* lse;
  int64_t
      owned_keys;  // rows of the key gradients in each thread's scratch, at least kAttentionBlock
};

// Elements of scratch per thread. padded_width: the head's width, rounded up to kMaxFloatLanes.
constexpr int64_t attention_forward_scratch(int64_t padded_width) {
  return 4 * kAttentionBlock * padded_width + kAttentionBlock * kAttentionBlock;
}
constexpr int64_t attention_backward_scratch(int64_t padded_width, int64_t owned_keys) {
  return (7 * kAttentionBlock + 2 * owned_keys) * padded_width +
         2 * kAttentionBlock * kAttentionBlock;
}

TRIREME_CPU_KERNEL(attention_forward, (const AttentionForward<T>& a, int threads))
TRIREME_CPU_KERNEL(attention_backward, (const AttentionBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the argument structures of the CPU kernels. a.items is not used; a.scratch is
// (heads, tokens) elements in the backward pass, unused in the forward pass. Heads of more than
// kMaxHeadDim elements have no kernel.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

inline constexpr int64_t kMaxHeadDim = 256;

// Calls cuDNN (cudnn_attention.cuda.h) if it supports the case, else the tensor-core kernels below
// if they do, else the blocked ones.
template <class T>
TRIREME_CUDA_DECL void attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);

// Prepares cuDNN's plan and memory for the case in a planning run, without reading an operand.
template <class T>
TRIREME_CUDA_DECL void plan_attention(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void plan_attention(Context& gpu, const cpu::AttentionBackward<T>& a);

// Any case, without tensor cores. Backward: a.scratch is the result of attention_delta().
template <class T>
void blocked_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
void blocked_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);

// With tensor cores; T is bf16 or f16. Returns false, with nothing done, for heads of more than 128
// elements, for a width or strides that are not multiples of 8 elements, and for operands that are
// not 16-byte aligned.
template <class T>
bool mma_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
// Also false for a soft cap. a.scratch: the result of attention_delta().
template <class T>
bool mma_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);

// Initial values for segments: out_sum = 0 and lse = -inf in all rows; all gradient sums = 0.
template <class T>
void clear_attention(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
void clear_attention(Context& gpu, const cpu::AttentionBackward<T>& a);
// a.scratch[h, t] = sum over d of dout[t, h, d] * out[t, h, d].
template <class T>
void attention_delta(Context& gpu, const cpu::AttentionBackward<T>& a);

}  // namespace trireme::cuda
