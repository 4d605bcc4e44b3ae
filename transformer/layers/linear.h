// Linear layers y = x w^T + b over one or several logical weights that are stored as one matrix,
// split over the tensor-parallel ranks by outputs (column-parallel) or by inputs (row-parallel).
// Paired as in Shoeybi et al. 2019: the first product of a branch is column-parallel, the second
// row-parallel, and ranks communicate only before the first and after the second
// (transformer/pass/tensor_parallel_mappings.h). Both kinds support adapters
// (transformer/layers/lora.h); a frozen weight has no gradient.
#pragma once

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/rows/activation.h"
#include "transformer/layers/lora.h"
#include "transformer/pass/sharding.h"
#include "transformer/pass/tensor_parallel_mappings.h"

namespace trireme {

class Weight;

// One logical weight of a fused projection: q_proj, k_proj, v_proj.
struct LinearPart {
  std::string name;  // without ".weight"
  int64_t out = 0;   // logical
  DimSlice rows;     // outputs of the logical weight that this rank holds
};

struct LinearInit {
  bool bias = false;
  double std = 0.0;  // standard deviation of the initial weights; biases start at 0
};

// Column-parallel linear layer: each rank computes its rows of the weights for all tokens.
class ColumnLinear {
 public:
  ColumnLinear() = default;
  ColumnLinear(ParameterList& list, const std::vector<LinearPart>& parts, int64_t in,
               const LinearInit& init, int block);

  int64_t out() const { return out_; }  // this rank's
  ParamHandle weight() const { return first_weight_; }
  // x (T / split, in), y (T, out)
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x) const;
  // dx (T / split, in) = dy w, summed over the ranks. Overwrites dx. dy (T, out).
  void backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const;
  // Writes the gradients of weight and bias. x (T, in): the layer's input for all tokens, gathered
  // by the caller. dy (T, out): the gradient of the output.
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const;

 private:
  friend class ReplicatedLinear;
  // Product for a range of tokens, adapters included.
  void multiply(Pass& pass, const TokenRange& tokens, const Tensor& y, const ConstTensor& x,
                const Activation& squares, const Weight& weight) const;
  void input_products(Pass& pass, const TokenRange& tokens, const Tensor& dx, const ConstTensor& dy,
                      const Activation& squares, const Tensor& weight) const;
  void add_bias_parameters(ParameterList& list, const std::vector<LinearPart>& parts,
                           const LinearInit& init, int block);
  int64_t out_ = 0;
  ParamHandle first_weight_ = -1, last_weight_ = -1;
  ParamHandle first_bias_ = -1, last_bias_ = -1;
  LowRank adapters_;
};

// Replicated linear layer: every rank holds all weights and multiplies its own rows, without
// communication. For products whose output is cheaper to gather than their input (the
// down-projections of latent attention). Weight gradients are partial sums with sequence
// parallelism; without it, dy must be the same on all tensor-parallel ranks.
class ReplicatedLinear {
 public:
  ReplicatedLinear() = default;
  // parts: name and logical outputs; `rows` is not read.
  ReplicatedLinear(ParameterList& list, const Layout& layout, std::vector<LinearPart> parts,
                   int64_t in, const LinearInit& init, int block);

  int64_t out() const { return products_.out(); }
  ParamHandle weight() const { return products_.weight(); }
  // x, dx (R, in); y, dy (R, out); R = T, or T / split for this rank's share of the tokens.
  // backward_input() overwrites dx.
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x) const;
  void backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const;

 private:
  ColumnLinear products_;
};

// Row-parallel linear layer: each rank computes a partial sum of every output; the bias is added to
// the sum.
class RowLinear {
 public:
  RowLinear() = default;
  RowLinear(ParameterList& list, const Layout& layout, const std::string& name, int64_t out,
            int64_t in, const DimSlice& columns, const LinearInit& init, int block);

  ParamHandle weight() const { return weight_; }
  // x (T, columns), y (T / split, out)
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x) const;
  // dx (T, columns) = dy w. Overwrites dx. dy (T / split, out). Returns dy of all tokens, (T, out),
  // the dy_all of backward_weight(); it may be a view of dy.
  AllTokens backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const;
  // Writes the gradients of weight and bias. x (T, columns): the layer's input.
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& dy_all,
                       const ConstTensor& x) const;

 private:
  ParamHandle weight_ = -1;
  ParamHandle bias_ = -1;
  LowRank adapters_;
};

}  // namespace trireme
