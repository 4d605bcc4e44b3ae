// Where the residual stream meets the tensor-parallel part of a layer (Shoeybi et al. 2019;
// Korthikanti et al. 2022). With t ranks and activations (T, C):
//
//                          one token share a rank (sequence parallel)      all tokens on every rank
//   enter   forward        all-gather of the shares                        nothing
//           backward       reduce-scatter of the partial sums              all-reduce of them
//   leave   forward        reduce-scatter of the partial sums              all-reduce of them
//           backward       all-gather of the shares                        nothing
// Without tensor parallelism all of them do nothing. In a planning run only memory is asked for.
//
// With sequence parallelism a product beside such an exchange may overlap with it
// (parallel.tp_comm_overlap):
// the exchange is cut into messages between two ranks, the share of one rank each, in t - 1 steps,
// and the product into t parts of T / t tokens (after Wang et al. 2023, "Overlap communication with
// dependent computation via decomposition").
//   all-gather, then product      all messages are under way before the own share is multiplied; the share
//                                 of rank i - s is once it has come
//   product, then reduce-scatter  the part for rank i + s leaves when it is computed, the own one is computed
//                                 while the last travels; the parts are added in the order of the ranks
//   all-gather, then the weight's gradient   the gather travels while another gradient is computed
// A rank sends the same bytes as in a ring, (t - 1) / t of the tensor.
#pragma once

#include <functional>

#include "transformer/pass/pass.h"

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

// x (T / split, C) -> (T, C). Shows x itself where there is nothing to gather; x must then outlive
// it.
AllTokens gather_tokens(Pass& pass, const ConstTensor& x);

// Whether this rank's products overlap with their exchange; in 8-bit floats they do not.
bool overlaps_exchange(const Pass& pass);

// Rows of the tokens.
struct TokenRange {
  int64_t begin = 0, end = 0;
  template <class AnyTensor>
  AnyTensor of(const AnyTensor& all) const {
    return all.slice(0, begin, end);
  }
};

// gather_tokens(), and product(rows, those rows of x) for ranges that together are all tokens, as
// they come.
using InputProduct = std::function<void(const TokenRange& rows, const ConstTensor& x)>;
AllTokens gather_tokens_with(Pass& pass, const ConstTensor& x, const InputProduct& product);

// gather_tokens() under way while something else is computed; x must not change before wait().
// Where exchanges do not overlap all of it is done in wait().
class ArrivingTokens {
 public:
  ArrivingTokens(Pass& pass, const ConstTensor& x);
  const ConstTensor& wait();  // (T, C), valid as long as this

 private:
  Pass& pass_;
  ConstTensor x_;
  AllTokens all_;
  Work work_;
  bool started_;
};

// The sum over the tensor-parallel ranks of what `product` writes into the (T, C) tensor it is
// given, stored in y (T / split, C).
template <class Product>
void sum_over_tensor_ranks(Pass& pass, const Tensor& y, const Product& product);

// The same where product(rows, out) can write the rows of any range of tokens alone. y must not be
// what product reads.
using OutputProduct = std::function<void(const TokenRange& rows, const Tensor& out)>;
void sum_over_tensor_ranks_with(Pass& pass, const Tensor& y, const OutputProduct& product);

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
