// Low-rank adapters of linear layers (Hu et al. 2021, "LoRA"): with a weight W (out, in) that stays
// as it is,
//
//   y = x W^T + s (x' A^T) B^T,   x' = dropout(x),   A (r, in), B (out, r)
//
// s = alpha / r, or alpha / sqrt(r) rank-stabilised (Kalajdzievski 2023). A starts as a normal
// distribution of PEFT's variance, 1 / (3 in), B as zeros: the model starts as it was.
//
// Over tensor-parallel ranks an adapter is divided as its layer, so that it needs no exchange of
// its own:
//   column-parallel   A on every rank, of B its rows; the gradient of A is a partial sum
//   row-parallel      of A its columns, B on every rank; the gradient of B is a partial sum
//   replicated        both on every rank, their gradients as the layer's
// and what it adds to y (or dx) is a part of the sum that the layer forms anyway.
//
// With magnitudes (Liu et al. 2024, "DoRA") the rows of V = W + s B A have lengths m of their own,
// which are trained too and begin as those of W (model_source.h):
//
//   y = x W^T + (g - 1) x' W^T + g s (x' A^T) B^T + b,   g[j] = m[j] / ||V[j]||   (PEFT's; without dropout g V x + b)
//
// and ||V|| counts as a constant in backward: dm[j] = sum over tokens of dy[j] (V x')[j] /
// ||V[j]||. It is taken anew in every pass (engine/ops/weight_norm.h), so that nothing can be
// stale. A row-parallel rank has a part of each
// ||V||^2, which are added over the ranks: (out) elements are exchanged. m is divided as the layer's bias, of a
// row-parallel layer every rank has all of it and a part of its gradient.
//
// Nothing is saved for backward: x A^T and dy B are computed again, r columns each, and for dm V
// x'.
#pragma once

#include <string>
#include <vector>

#include "transformer/pass/sharding.h"
#include "transformer/pass/tensor_exchange.h"

namespace trireme {

struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;
  double dropout = 0;
  bool rank_stabilised = false;
  bool dora = false;  // with magnitudes
  // Names of layers or their ends behind a dot: "q_proj"; words: "all-linear", "attention".
  std::vector<std::string> targets;
  std::string pattern = {};  // instead: a regular expression of whole names (engine/text/regex.h)
  bool enabled() const { return rank > 0; }
  double scale() const;
  bool adapts(const std::string& layer) const;
  // The same of a name as it is, which adapts() gives the layers of GPT-2 too that one of ours is a
  // part of.
  bool matches(const std::string& name) const;
  bool operator==(const LoraConfig&) const = default;
};

// Of a layer's adapters, as their parameters are named: layer + ".lora_A.weight".
inline constexpr const char* kMagnitudeSuffix = ".lora_magnitude_vector";

// The parameters that Model's layers add while this is set in their list are frozen, adapters'
// excepted.
struct LoraPlan final : AdapterPlan {
  LoraPlan(const LoraConfig& lora, const Place& tensor_parallel)
      : config(lora), tp(tensor_parallel) {}

  LoraConfig config;
  Place tp;
};

// The tokens that the rows of x are about: all of them, or this rank's share of the residual
// stream.
TokenRange rows_of(const Pass& pass, const ConstTensor& x);

// The adapters of one linear layer: of each of the logical weights that lie in its matrix, or some
// of them.
class LowRank {
 public:
  LowRank() = default;
  bool present() const { return !parts_.empty(); }

  // After the weights, of which `weight` is this part's. first_output: of the layer's (this rank's)
  // outputs the first that the weight computes.
  void add_column(ParameterList& list, const std::string& layer, ParamHandle weight,
                  const DimSlice& rows, int64_t first_output);
  void add_row(ParameterList& list, const std::string& layer, ParamHandle weight,
               const DimSlice& columns);

  // With magnitudes the outputs are scaled: the layer adds its bias behind forward().
  bool scales_outputs() const { return magnitudes_; }
  // `weight`, here and below: the layer's matrix as its own product reads it, so that one in 4 bits
  // is unpacked once. With magnitudes ||V||^2 of every output, for the calls below; absent without.
  // Of row-parallel layers collective over the tensor-parallel ranks.
  Activation row_squares(Pass& pass, const ConstTensor& weight) const;
  // y, which is x W^T -> y + ..., of some tokens. x (n, in), y (n, out) of them.
  void forward(Pass& pass, const TokenRange& tokens, const Tensor& y, const ConstTensor& x,
               const Activation& squares, const ConstTensor& weight) const;
  // What W, and backward_input(), are to have in the place of dy: g dy where there are magnitudes
  // and no dropout.
  AllTokens through_weight(Pass& pass, const ConstTensor& dy, const Activation& squares) const;
  // dx, which is W's share, += ..., of some tokens. dy: as through_weight() says.
  void backward_input(Pass& pass, const TokenRange& tokens, const Tensor& dx, const ConstTensor& dy,
                      const Activation& squares, const ConstTensor& weight) const;
  // The gradients of A, B and m, from all tokens that the layer has here. The weight, `first` ..
  // `last` of one fused matrix, is read for m only.
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, ParamHandle first,
                       ParamHandle last) const;

 private:
  struct Part {
    ParamHandle a = -1, b = -1;
    ParamHandle magnitude = -1;
    int64_t begin = 0, end = 0;  // outputs of the layer
    ConstTensor of(const ConstTensor& weight) const { return weight.slice(0, begin, end); }
  };
  void take(const ParameterList& list, const std::string& layer, int64_t first_input,
            int64_t inputs);
  bool drops(const Pass& pass) const;
  RandomKey dropout_key(const Pass& pass) const;
  // x' of some tokens; shows x itself without dropout.
  AllTokens dropped(Pass& pass, const TokenRange& tokens, const ConstTensor& x) const;
  // s x' A^T of some tokens
  Activation inner(Pass& pass, const TokenRange& tokens, const Part& part,
                   const ConstTensor& x) const;
  // s d B, d (n, outputs of the part)
  Activation inner_gradient(Pass& pass, const Part& part, const ConstTensor& d) const;
  // y = (g + shift) x, or y +=, of the part's outputs
  void scale(Pass& pass, const Part& part, const Activation& squares, const Tensor& y,
             const ConstTensor& x, double shift = 0, bool accumulate = false) const;
  void scaled_forward(Pass& pass, const Part& part, const Activation& squares, const Tensor& y,
                      const ConstTensor& dropped, const ConstTensor& h,
                      const ConstTensor& weight) const;
  void magnitude_gradient(Pass& pass, const Part& part, const Activation& squares,
                          const Tensor& scratch, const ConstTensor& dy, const ConstTensor& dropped,
                          const ConstTensor& h, const ConstTensor& weight) const;
  std::vector<Part> parts_;  // in the order of the outputs
  double scale_ = 1, dropout_ = 0;
  bool magnitudes_ = false;
  bool divided_inputs_ = false;               // over tensor-parallel ranks
  uint64_t stream_ = 0;                       // of the dropout
  int64_t first_input_ = 0, all_inputs_ = 0;  // this rank's inputs among all of the layer
};

}  // namespace trireme
