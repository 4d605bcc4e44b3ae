// Where the residual stream meets the tensor-parallel part of a layer (Shoeybi et al. 2019; Korthikanti
// et al. 2022). With t ranks and activations (T, C):
//
//                          one token share a rank (sequence parallel)      all tokens on every rank
//   enter   forward        all-gather of the shares                        nothing
//           backward       reduce-scatter of the partial sums              all-reduce of them
//   leave   forward        reduce-scatter of the partial sums              all-reduce of them
//           backward       all-gather of the shares                        nothing
// Without tensor parallelism all of them do nothing. In a planning run only memory is asked for.
#pragma once

#include "transformer/pass.h"

namespace trireme {

// A tensor about all tokens: gathered here, or the one that was there already.
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

// x (T / split, C) -> (T, C). Shows x itself where there is nothing to gather; x must then outlive it.
AllTokens gather_tokens(Pass& pass, const ConstTensor& x);

// The sum over the tensor-parallel ranks of what `product` writes into the (T, C) tensor it is given,
// stored in y (T / split, C).
template <class Product>
void sum_over_tensor_ranks(Pass& pass, const Tensor& y, const Product& product);

// The two halves of it.
bool needs_partial_sums(const Pass& pass);  // y cannot take the product itself
void add_tensor_ranks(Pass& pass, const Tensor& y, const Tensor& partial);  // (T / split), (T)

template <class Product>
void sum_over_tensor_ranks(Pass& pass, const Tensor& y, const Product& product) {
  if (!needs_partial_sums(pass)) {
    product(y);
    add_tensor_ranks(pass, y, y);
    return;
  }
  const Activation partial =
      pass.ctx.allocate("tensor_parallel.partial", y.dtype(), Shape{pass.tokens.count, y.size(1)});
  product(partial);
  add_tensor_ranks(pass, y, partial);
}

}  // namespace trireme
