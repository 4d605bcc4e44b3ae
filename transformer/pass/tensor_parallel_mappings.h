// Tensor-parallel mappings between the residual stream and the tensor-parallel part of a layer
// (Shoeybi et al. 2019; Korthikanti et al. 2022). With t ranks and activations (T, C):
//
//                      tokens split over ranks (sequence parallel)   all tokens on every rank
//   enter   forward    all-gather of the shares                      nothing
//           backward   reduce-scatter of the partial sums            all-reduce of them
//   leave   forward    reduce-scatter of the partial sums            all-reduce of them
//           backward   all-gather of the shares                      nothing
//
// Without tensor parallelism they are no-ops. A planning run only allocates memory.
//
// With sequence parallelism a product next to such a collective may overlap with it
// (parallel.tp_comm_overlap). The collective is cut into point-to-point messages of one rank's
// share each, in t - 1 steps, and the product into t parts of T / t tokens (after Wang et al. 2023,
// "Overlap communication with dependent computation via decomposition").
//
// In step s = 1 .. t - 1 rank i sends to rank i + s and receives from rank i - s, modulo t.
//
//   all-gather, then product      all messages are started before a rank multiplies its own share;
//                                 the share of rank i - s is multiplied when it has arrived
//   product, then reduce-scatter  the part for rank i + s is sent when it is computed; a rank's own
//                                 part is computed during the last transfer; parts are added in
//                                 rank order
//   all-gather, then the weight's gradient   the gather overlaps with another gradient
//
// A rank sends the same number of bytes as in a ring, (t - 1) / t of the tensor.
#pragma once

#include <functional>

#include "transformer/pass/pass.h"

namespace trireme {

// Tensor of all tokens: gathered and owned, or a view of a tensor that was already complete.
class AllTokens {
 public:
  AllTokens() = default;
  AllTokens(Activation gathered, const ConstTensor& view)
      : gathered_(std::move(gathered)), view_(view) {}
  const ConstTensor& operator*() const { return view_; }
  operator const ConstTensor&() const { return view_; }  // NOLINT: used as the tensor it shows

 private:
  Activation gathered_;
  ConstTensor view_;
};

// Gathers x (T / split, C) to (T, C). Returns a view of x if the tokens are not split; x must then
// outlive it.
AllTokens gather_tokens(Pass& pass, const ConstTensor& x);

// Returns whether this rank's products overlap with their communication; FP8 products do not.
bool overlaps_communication(const Pass& pass);

// Range of token rows.
struct TokenRange {
  int64_t begin = 0, end = 0;
  template <class AnyTensor>
  AnyTensor of(const AnyTensor& all) const {
    return all.slice(0, begin, end);
  }
};

// gather_tokens() that calls product(rows, those rows of x) for each range of tokens as it arrives;
// the ranges together cover all tokens once.
using InputProduct = std::function<void(const TokenRange& rows, const ConstTensor& x)>;
AllTokens gather_tokens_with(Pass& pass, const ConstTensor& x, const InputProduct& product);

// gather_tokens() that overlaps with other computation; x must not change before wait(). If
// communication does not overlap, wait() does the whole gather.
class ArrivingTokens {
 public:
  ArrivingTokens(Pass& pass, const ConstTensor& x);
  const ConstTensor& wait();  // (T, C), valid during the lifetime of this object

 private:
  Pass& pass_;
  ConstTensor x_;
  AllTokens all_;
  Work work_;
  bool started_;
};

// Calls product(out), which writes a partial sum (T, C), and stores the sum over the
// tensor-parallel ranks in y (T / split, C).
template <class Product>
void sum_over_tensor_ranks(Pass& pass, const Tensor& y, const Product& product);

// The same for a product(rows, out) that can write any range of token rows separately. y must not
// alias an input of the product.
using OutputProduct = std::function<void(const TokenRange& rows, const Tensor& out)>;
void sum_over_tensor_ranks_with(Pass& pass, const Tensor& y, const OutputProduct& product);

// The two halves of sum_over_tensor_ranks(). needs_partial_sums(): y holds only a share of the
// tokens, so that the product needs a (T, C) tensor of its own. reduce_over_tensor_ranks() then
// reduce-scatters partial (T, C) into y (T / split, C); otherwise it all-reduces y.
bool needs_partial_sums(const Pass& pass);
void reduce_over_tensor_ranks(Pass& pass, const Tensor& y, const Tensor& partial);

template <class Product>
void sum_over_tensor_ranks(Pass& pass, const Tensor& y, const Product& product) {
  if (!needs_partial_sums(pass)) {
    product(y);
    reduce_over_tensor_ranks(pass, y, y);
    return;
  }
  const Activation partial =
      pass.ctx.allocate("tensor_parallel.partial", y.dtype(), Shape{pass.tokens.count, y.size(1)});
  product(partial);
  reduce_over_tensor_ranks(pass, y, partial);
}

}  // namespace trireme
