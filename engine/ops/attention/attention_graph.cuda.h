// Attention as graphs that cuDNN's fused engines recognize (FlashAttention-2, Dao 2023): sequences
// with as many keys as queries, in the layout of engine/ops/attention/attention.h. For CUDA sources
// only.
#pragma once

#include <compare>

#include "engine/ops/attention/cudnn_graph.cuda.h"

namespace trireme::cuda {

// Key of a graph and its plan: `batch` sequences of `length` queries and as many keys, one after
// the other. Each operand, (tokens, heads or kv_heads, width), is described by its strides of
// tokens and heads, in elements.
struct AttentionShape {
  struct Strides {
    int64_t token = 0, head = 0;
    auto operator<=>(const Strides&) const = default;
  };
  int64_t batch = 0, heads = 0, kv_heads = 0, length = 0, width = 0;
  // Layout of lse and delta. Without `ragged` they are (batch, heads, length), contiguous, and
  // `tokens` is 0. With `ragged` they are (heads, tokens); or, if `tokens` is 0, lse is (any number
  // of tokens, heads), so that one plan serves batches of any size: for forward passes whose lse is
  // not needed.
  int64_t tokens = 0;
  bool bfloat16 = true;  // or float16
  bool causal = true;
  // Lengths differ: kTensorQueries and kTensorKeys have them, and `length` is the maximum.
  bool ragged = false;
  bool backward = false;
  // Backward sums dq in a fixed order, with a workspace of about 2 heads length^2 bytes for each
  // sequence.
  bool repeatable = true;
  Strides q = {}, k = {}, v = {}, out = {};
  Strides dout = {}, dq = {}, dk = {}, dv = {};  // with `backward`
  auto operator<=>(const AttentionShape&) const = default;
};

// Numbers of the graphs' tensors. Scalars are float32, in host memory.
enum AttentionTensor : int64_t {
  kTensorQ = 1,
  kTensorK,
  kTensorV,
  kTensorOut,
  kTensorLse,       // float32, output of the forward pass, input of the backward pass
  kTensorScale,     // scalar
  kTensorMinusInf,  // scalar: value of a masked score; with `causal` or `ragged`
  kTensorDout,
  kTensorDq,
  kTensorDk,
  kTensorDv,
  kTensorDelta,  // float32, output: sum over d of dout * out; laid out like lse
  kTensorOne,    // scalar 1
  kTensorDqSum,  // (batch, heads, length, width) float32, initially 0; without `repeatable`
  // With `ragged`, on the device:
  kTensorQueries,  // (batch) int32: number of queries of each sequence
  kTensorKeys,     // (batch) int32: number of keys of each sequence, equal to that of queries
  // kTensorOffsets + n: (batch + 1) int64, starts of the sequences in tensor n, in elements.
  kTensorOffsets = 100,
};

//   S = scale q k^T, masked     lse = log sum exp S     out = softmax(S) v
dnn::Graph attention_forward_graph(const AttentionShape& shape);
//   P = exp(S - lse)     dS = scale P (dout v^T - delta)
//   dv = P^T dout     dk = dS^T q     dq = dS k     dk and dv are sums over the queries' heads
dnn::Graph attention_backward_graph(const AttentionShape& shape);

}  // namespace trireme::cuda
