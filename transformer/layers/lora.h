// Low-rank adapters of linear layers (Hu et al. 2021, "LoRA"). With a frozen weight W (out, in):
//
//   y = x W^T + s (x' A^T) B^T,   x' = dropout(x),   A (r, in), B (out, r)
//
// s = alpha / r, or alpha / sqrt(r) rank-stabilized (Kalajdzievski 2023). A is initialized from a
// normal distribution with PEFT's variance, 1 / (3 in), B with zeros: the initial model is the base
// model.
//
// Tensor parallelism divides an adapter like its layer, so that it needs no extra communication:
//   column-parallel   all of A and the rank's rows of B; the gradient of A is a partial sum
//   row-parallel      the rank's columns of A and all of B; the gradient of B is a partial sum
//   replicated        all of A and B; their gradients are like the layer's
// The adapter's contribution to y (or dx) is added before the layer's own reduction.
//
// With magnitudes (Liu et al. 2024, "DoRA") the rows of V = W + s B A have trained lengths m,
// initialized to those of W (ModelSource::load_row_norms()):
//
//   y = x W^T + (g - 1) x' W^T + g s (x' A^T) B^T + b,   g[j] = m[j] / ||V[j]||
//   (PEFT's definition; without dropout it is g V x + b)
//
// Backward treats ||V|| as a constant: dm[j] = sum over tokens of dy[j] (V x')[j] / ||V[j]||. Every
// pass computes ||V|| again (engine/ops/norm/dora_magnitude.h), so that it cannot be stale. A
// row-parallel rank has a part of each ||V||^2; the parts are summed over the ranks, (out)
// elements. m is divided like the layer's bias: in a row-parallel layer every rank has all of m and
// a part of its gradient.
//
// Nothing is saved for backward: x A^T and dy B are recomputed, r columns each, and for dm also V
// x'.
#pragma once

#include <string>
#include <vector>

#include "transformer/pass/sharding.h"
#include "transformer/pass/tensor_parallel_mappings.h"

namespace trireme {

struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;
  double dropout = 0;  // probability, of the elements of x'
  bool rank_stabilized = false;
  bool dora = false;  // with magnitudes
  // Layer names, their suffixes after a dot ("q_proj"), or keywords: "all-linear", "attention".
  std::vector<std::string> targets;
  // Instead of targets: regular expression for full names (engine/text/regex.h).
  std::string pattern = {};
  bool enabled() const { return rank > 0; }
  double scale() const;
  bool adapts(const std::string& layer) const;
  // Like adapts() for one literal name; adapts() also tries the name of the fused GPT-2 layer
  // (c_attn) that contains ours.
  bool matches(const std::string& name) const;
  bool operator==(const LoraConfig&) const = default;
};

// Suffix of a layer's magnitudes; the factors are named layer + ".lora_A.weight".
inline constexpr const char* kMagnitudeSuffix = ".lora_magnitude_vector";

// Adapter settings of a ParameterList. While they are set, the parameters that Model's layers add
// are frozen, except those of adapters.
struct LoraPlan final : AdapterPlan {
  LoraPlan(const LoraConfig& lora, const GroupCoord& tensor_parallel)
      : config(lora), tp(tensor_parallel) {}

  LoraConfig config;
  GroupCoord tp;
};

// Returns the tokens of the rows of x: all tokens, or this rank's share of the residual stream.
TokenRange rows_of(const Pass& pass, const ConstTensor& x);

// Adapters of one linear layer, for all or some of the logical weights in its matrix.
class LowRank {
 public:
  LowRank() = default;
  bool present() const { return !parts_.empty(); }

  // Adds the parameters of the adapter of one logical weight, `weight`, if the list's LoraPlan
  // targets `layer`; call after all weights of the layer were added. first_output: index of the
  // weight's first output among this rank's outputs of the layer.
  void add_column(ParameterList& list, const std::string& layer, ParamHandle weight,
                  const DimSlice& rows, int64_t first_output);
  void add_row(ParameterList& list, const std::string& layer, ParamHandle weight,
               const DimSlice& columns);

  // With magnitudes the outputs are scaled, and the layer adds its bias after forward().
  bool scales_outputs() const { return magnitudes_; }
  // Squared row norms ||V||^2 for the calls below, one element for each output up to the last
  // adapted one; those of outputs without adapters are undefined. Absent without magnitudes.
  // weight, here and below: the layer's matrix as its own product reads it, so that a 4-bit weight
  // is unpacked once. Row-parallel layers: collective over the tensor-parallel ranks.
  Activation row_squares(Pass& pass, const ConstTensor& weight) const;
  // Adds the adapters to y = x W^T for a range of n tokens. x (n, in), y (n, out).
  void forward(Pass& pass, const TokenRange& tokens, const Tensor& y, const ConstTensor& x,
               const Activation& squares, const ConstTensor& weight) const;
  // Returns the gradient to use instead of dy in the product with W and in backward_input(): g dy
  // with magnitudes and without dropout, else dy.
  AllTokens through_weight(Pass& pass, const ConstTensor& dy, const Activation& squares) const;
  // Adds the adapters' gradient to dx = dy W for a range of tokens. dy: from through_weight().
  void backward_input(Pass& pass, const TokenRange& tokens, const Tensor& dx, const ConstTensor& dy,
                      const Activation& squares, const ConstTensor& weight) const;
  // Writes the gradients of A, B and m, from all tokens that the layer has on this rank. Only m
  // needs the weights, `first` .. `last` of one fused matrix.
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, ParamHandle first,
                       ParamHandle last) const;

 private:
  struct Part {
    ParamHandle a = -1, b = -1;
    ParamHandle magnitude = -1;
    int64_t begin = 0, end = 0;  // outputs of the layer that the part adapts
    ConstTensor of(const ConstTensor& weight) const { return weight.slice(0, begin, end); }
  };
  void take(const ParameterList& list, const std::string& layer, int64_t first_input,
            int64_t inputs);
  bool drops(const Pass& pass) const;
  RandomKey dropout_key(const Pass& pass) const;
  // x' of a range of tokens; a view of x without dropout.
  AllTokens dropped(Pass& pass, const TokenRange& tokens, const ConstTensor& x) const;
  // s x' A^T of a range of tokens
  Activation inner(Pass& pass, const TokenRange& tokens, const Part& part,
                   const ConstTensor& x) const;
  // s d B; d (n, outputs of the part)
  Activation inner_gradient(Pass& pass, const Part& part, const ConstTensor& d) const;
  // y = (g + shift) x, or y += ..., for the part's outputs
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
  bool divided_inputs_ = false;               // over the tensor-parallel ranks
  uint64_t stream_ = 0;                       // random stream of the dropout
  int64_t first_input_ = 0, all_inputs_ = 0;  // first input of this rank; inputs of the whole layer
};

}  // namespace trireme
