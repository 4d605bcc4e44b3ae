// Low-rank adapters of linear layers (Hu et al. 2021, "LoRA"): with a weight W (out, in) that stays as it is,
//
//   y = x W^T + s (x' A^T) B^T,   x' = dropout(x),   A (r, in), B (out, r)
//
// s = alpha / r, or alpha / sqrt(r) rank-stabilised (Kalajdzievski 2023). A starts as a normal distribution of
// PEFT's variance, 1 / (3 in), B as zeros: the model starts as it was.
//
// Over tensor-parallel ranks an adapter is divided as its layer, so that it needs no exchange of its own:
//   column-parallel   A on every rank, of B its rows; the gradient of A is a partial sum
//   row-parallel      of A its columns, B on every rank; the gradient of B is a partial sum
//   replicated        both on every rank, their gradients as the layer's
// and what it adds to y (or dx) is a part of the sum that the layer forms anyway.
//
// Nothing is saved for backward: x A^T and dy B are computed again, r columns each.
#pragma once

#include <string>
#include <vector>

#include "transformer/sharding.h"
#include "transformer/tensor_exchange.h"

namespace trireme {

struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;
  double dropout = 0;
  bool rank_stabilised = false;
  std::vector<std::string>
      targets;  // last parts of the layers' names: "q_proj"; "all-linear": all of them
  bool enabled() const { return rank > 0; }
  double scale() const;
  bool adapts(const std::string& layer) const;
  bool operator==(const LoraConfig&) const = default;
};

// The parameters that Model's layers add while this is set in their list are frozen, adapters' excepted.
struct AdapterPlan {
  LoraConfig config;
  Place tp;
};

// The tokens that the rows of x are about: all of them, or this rank's share of the residual stream.
TokenRange rows_of(const Pass& pass, const ConstTensor& x);

// The adapters of one linear layer: of each of the logical weights that lie in its matrix, or some of them.
class LowRank {
 public:
  LowRank() = default;
  bool present() const { return !parts_.empty(); }

  // After the weights. `outputs`: which of the layer's (this rank's) outputs the weight computes.
  void add_column(ParameterList& list, const std::string& layer, int64_t out, int64_t in,
                  const DimSlice& rows, int64_t first_output, int block);
  void add_row(ParameterList& list, const std::string& layer, int64_t out, int64_t in,
               const DimSlice& columns, int block);

  // y += ..., of some tokens. x (n, in), y (n, out) of them.
  void forward(Pass& pass, const TokenRange& tokens, const Tensor& y, const ConstTensor& x) const;
  // dx += ..., of some tokens.
  void backward_input(Pass& pass, const TokenRange& tokens, const Tensor& dx,
                      const ConstTensor& dy) const;
  // The gradients of A and B, from all tokens that the layer has here.
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const;

 private:
  struct Part {
    ParamHandle a = -1, b = -1;
    int64_t begin = 0, end = 0;  // outputs of the layer
  };
  void take(const ParameterList& list, const std::string& layer, int64_t first_input,
            int64_t inputs);
  bool drops(const Pass& pass) const;
  RandomKey dropout_key(const Pass& pass) const;
  // x' of some tokens; shows x itself without dropout.
  AllTokens dropped(Pass& pass, const TokenRange& tokens, const ConstTensor& x) const;
  Activation inner(Pass& pass, const Part& part, const ConstTensor& x) const;            // s x' A^T
  Activation inner_gradient(Pass& pass, const Part& part, const ConstTensor& dy) const;  // s dy B
  std::vector<Part> parts_;
  double scale_ = 1, dropout_ = 0;
  uint64_t stream_ = 0;                       // of the dropout
  int64_t first_input_ = 0, all_inputs_ = 0;  // this rank's inputs among all of the layer
};

}  // namespace trireme
