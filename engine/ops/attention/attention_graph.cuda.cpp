#ifdef TRIREME_CUDNN
#include "engine/ops/attention/attention_graph.cuda.h"

namespace trireme::cuda {
namespace {

using dnn::Graph;
using Tensor = Graph::Tensor;
using Sizes = Graph::Sizes;
constexpr cudnnDataType_t kSums = CUDNN_DATA_FLOAT;

// Graph under construction, with the shapes used in it.
struct Builder {
  const AttentionShape& s;
  Graph g;
  cudnnDataType_t narrow = s.bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  Sizes scores{s.batch, s.heads, s.length, s.length};
  Sizes rows{s.batch, s.heads, s.length, 1};
  Sizes wide{s.batch, s.heads, s.length, s.width};

  // Starts of the sequences in a tensor.
  Tensor offsets(int64_t number) {
    if (!s.ragged) return nullptr;
    Tensor& known = offsets_[number];
    if (known == nullptr)
      known =
          g.tensor(kTensorOffsets + number, CUDNN_DATA_INT64, {s.batch + 1, 1, 1, 1}, {1, 1, 1, 1});
    return known;
  }
  // Tensor (batch, heads, length, width), and the same memory with the last two swapped.
  Tensor operand(int64_t number, int64_t heads, const AttentionShape::Strides& at) {
    return g.tensor(number, narrow, {s.batch, heads, s.length, s.width},
                    {s.length * at.token, at.head, at.token, 1}, offsets(number));
  }
  Tensor transposed(int64_t number, int64_t heads, const AttentionShape::Strides& at) {
    return g.tensor(number, narrow, {s.batch, heads, s.width, s.length},
                    {s.length * at.token, at.head, 1, at.token}, offsets(number));
  }
  // lse and delta. Before cuDNN 9.26 a backward pass ignores their strides unless they are ragged,
  // and reads contiguous memory (cudnn-frontend 1.32 refuses other strides).
  Tensor statistic(int64_t number) {
    const Sizes packed{s.heads * s.length, s.length, 1, 1};
    const Sizes by_head{s.length, s.tokens, 1, 1}, by_token{s.length * s.heads, 1, s.heads, 1};
    const Sizes& strides = !s.ragged ? packed : s.tokens > 0 ? by_head : by_token;
    return g.tensor(number, kSums, rows, strides, offsets(number));
  }
  Tensor score() { return g.temporary(kSums, scores); }

  Tensor position(Tensor like, int64_t axis) {
    const Tensor y = g.temporary(CUDNN_DATA_INT32, scores);
    g.index(like, axis, y);
    return y;
  }
  Tensor compared(cudnnPointwiseMode_t mode, Tensor a, Tensor b) {
    const Tensor y = g.temporary(CUDNN_DATA_BOOLEAN, scores);
    g.binary(mode, a, b, y);
    return y;
  }
  // Lengths of the sequences; null if all are equal.
  Tensor lengths(int64_t number) {
    if (!s.ragged) return nullptr;
    Tensor& known = lengths_[number];
    if (known == nullptr)
      known = g.tensor(number, CUDNN_DATA_INT32, {s.batch, 1, 1, 1}, {1, 1, 1, 1});
    return known;
  }
  // Sizes of the products (queries, keys), (queries, D) and (keys, D): without them an engine reads
  // and writes past the ends of sequences.
  Graph::ActualSizes scores_sizes() {
    return {.m = lengths(kTensorQueries), .n = lengths(kTensorKeys)};
  }
  Graph::ActualSizes query_sizes() {
    return {.m = lengths(kTensorQueries), .k = lengths(kTensorKeys)};
  }
  Graph::ActualSizes key_sizes() {
    return {.m = lengths(kTensorKeys), .k = lengths(kTensorQueries)};
  }
  Tensor where(Tensor seen, Tensor x) {
    const Tensor y = score();
    g.select(x, g.scalar(kTensorMinusInf), seen, y);
    return y;
  }
  // Minus infinity where the query or key does not exist, or the query precedes the key.
  Tensor masked(Tensor x) {
    if (s.ragged) {
      const Tensor query =
          compared(CUDNN_POINTWISE_CMP_LT, position(x, 2), lengths(kTensorQueries));
      const Tensor key = compared(CUDNN_POINTWISE_CMP_LT, position(x, 3), lengths(kTensorKeys));
      x = where(compared(CUDNN_POINTWISE_LOGICAL_AND, query, key), x);
    }
    if (s.causal) x = where(compared(CUDNN_POINTWISE_CMP_GE, position(x, 2), position(x, 3)), x);
    return x;
  }
  // Transpose of scores x, rounded.
  Tensor rounded_transpose(Tensor x) {
    const Tensor y = g.temporary(narrow, scores,
                                 {s.heads * s.length * s.length, s.length * s.length, 1, s.length});
    g.reshape(x, y);
    return y;
  }
  // gradient = p^T x; each of kv_heads has the sum over its queries' heads.
  void key_gradient(Tensor p, Tensor x, Tensor gradient) {
    if (s.heads == s.kv_heads) return g.matmul(p, x, gradient, key_sizes());
    const Tensor of_each = g.temporary(narrow, wide);
    g.matmul(p, x, of_each, key_sizes());
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, of_each, gradient);
  }

  std::map<int64_t, Tensor> offsets_ = {}, lengths_ = {};
};

}  // namespace

Graph attention_forward_graph(const AttentionShape& s) {
  Builder b{s, {}};
  Graph& g = b.g;
  const Tensor raw = b.score(), scaled = b.score();
  g.matmul(b.operand(kTensorQ, s.heads, s.q), b.transposed(kTensorK, s.kv_heads, s.k), raw,
           b.scores_sizes());
  g.binary(CUDNN_POINTWISE_MUL, raw, g.scalar(kTensorScale), scaled);
  const Tensor masked = b.masked(scaled);
  const Tensor largest = g.temporary(kSums, b.rows), sum = g.temporary(kSums, b.rows);
  const Tensor log_sum = g.temporary(kSums, b.rows);
  const Tensor shifted = b.score(), terms = b.score(), p = g.temporary(b.narrow, b.scores);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, largest);
  g.binary(CUDNN_POINTWISE_SUB, masked, largest, shifted);
  g.unary(CUDNN_POINTWISE_EXP, shifted, terms);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, terms, sum);
  g.unary(CUDNN_POINTWISE_LOG, sum, log_sum);
  g.binary(CUDNN_POINTWISE_ADD, largest, log_sum, b.statistic(kTensorLse));
  g.binary(CUDNN_POINTWISE_DIV, terms, sum, p);
  g.matmul(p, b.operand(kTensorV, s.kv_heads, s.v), b.operand(kTensorOut, s.heads, s.out),
           b.query_sizes());
  return std::move(b.g);
}

Graph attention_backward_graph(const AttentionShape& s) {
  Builder b{s, {}};
  Graph& g = b.g;
  const Tensor q = b.operand(kTensorQ, s.heads, s.q);
  const Tensor dout = b.operand(kTensorDout, s.heads, s.dout);
  const Tensor k_transposed = b.transposed(kTensorK, s.kv_heads, s.k);
  const Tensor scale = g.scalar(kTensorScale);

  const Tensor products = g.temporary(kSums, b.wide), of_row = g.temporary(kSums, b.rows);
  const Tensor delta = b.statistic(kTensorDelta);
  g.binary(CUDNN_POINTWISE_MUL, dout, b.operand(kTensorOut, s.heads, s.out), products);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, products, of_row);
  g.binary(CUDNN_POINTWISE_MUL, of_row, g.scalar(kTensorOne), delta);

  const Tensor raw = b.score(), scaled = b.score(), shifted = b.score(), p = b.score();
  g.matmul(q, k_transposed, raw, b.scores_sizes());
  g.binary(CUDNN_POINTWISE_MUL, raw, scale, scaled);
  g.binary(CUDNN_POINTWISE_SUB, scaled, b.statistic(kTensorLse), shifted);
  g.unary(CUDNN_POINTWISE_EXP, b.masked(shifted), p);
  b.key_gradient(b.rounded_transpose(p), dout, b.operand(kTensorDv, s.kv_heads, s.dv));

  const Tensor dp = b.score(), centered = b.score(), weighted = b.score(), ds = b.score();
  g.matmul(dout, b.transposed(kTensorV, s.kv_heads, s.v), dp, b.scores_sizes());
  g.binary(CUDNN_POINTWISE_SUB, dp, delta, centered);
  g.binary(CUDNN_POINTWISE_MUL, centered, p, weighted);
  g.binary(CUDNN_POINTWISE_MUL, weighted, scale, ds);
  b.key_gradient(b.rounded_transpose(ds), q, b.operand(kTensorDk, s.kv_heads, s.dk));

  const Tensor k = g.temporary(kSums, {s.batch, s.kv_heads, s.length, s.width},
                               {s.length * s.k.token, s.k.head, s.k.token, 1});
  g.reshape(k_transposed, k);
  const Tensor dq = b.operand(kTensorDq, s.heads, s.dq);
  if (s.repeatable) {
    g.matmul(ds, k, dq, b.query_sizes());
  } else {
    const Tensor sums = g.sums(kTensorDqSum, b.wide,
                               {s.heads * s.length * s.width, s.length * s.width, s.width, 1});
    g.matmul(ds, k, sums, b.query_sizes());
    g.unary(CUDNN_POINTWISE_IDENTITY, sums, dq);
  }
  return std::move(b.g);
}

}  // namespace trireme::cuda
#endif  // TRIREME_CUDNN
