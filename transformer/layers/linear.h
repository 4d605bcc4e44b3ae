// Linear layers y = x w^T + b over one or several logical weights stored as one matrix, split over
// the tensor-parallel ranks by outputs (column-parallel) or by inputs (row-parallel), as Shoeybi et
// al. 2019 pair them: the first product of a branch is column-parallel, the second row-parallel,
// and only the residual stream on both sides is exchanged (transformer/pass/tensor_exchange.h).
// Either may have adapters (transformer/layers/lora.h); a frozen weight has no gradient.
#pragma once

#include "engine/ops/activation.h"
#include "engine/ops/gemm.h"
#include "transformer/layers/lora.h"
#include "transformer/pass/sharding.h"
#include "transformer/pass/tensor_exchange.h"

namespace trireme {

class Weight;

// One logical weight of a fused projection: q_proj, k_proj, v_proj.
struct LinearPart {
  std::string name;  // without ".weight"
  int64_t out = 0;   // logical
  DimSlice rows;     // of it, this rank's outputs
};

struct LinearInit {
  bool bias = false;
  double std = 0.0;
};

// Outputs are split: each rank computes its rows of the weights for all tokens.
class ColumnLinear {
 public:
  ColumnLinear() = default;
  ColumnLinear(ParameterList& list, const std::vector<LinearPart>& parts, int64_t in,
               const LinearInit& init, int block);

  int64_t out() const { return out_; }  // this rank's
  ParamHandle weight() const { return first_weight_; }
  // x (T / split, in), y (T, out)
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x) const;
  // dx (T / split, in) = dy w, summed over the ranks; overwrites.
  void backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const;
  // The gradients of weight and bias from the layer's input about all tokens, x (T, in), gathered
  // again, and the output's gradient dy (T, out).
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const;

 private:
  friend class ReplicatedLinear;
  // Of some tokens, adapters included.
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

// Every rank has all of the weights and multiplies the rows it has: for products with few outputs,
// whose exchange is cheaper than that of their input (the down-projections of latent attention).
// Nothing is exchanged. Gradients of weights are partial sums where tensor-parallel ranks have
// other tokens, and complete where they have the same ones and the same dy.
class ReplicatedLinear {
 public:
  ReplicatedLinear() = default;
  // parts: name and logical outputs; their rows are not read.
  ReplicatedLinear(ParameterList& list, const Layout& layout, std::vector<LinearPart> parts,
                   int64_t in, const LinearInit& init, int block);

  int64_t out() const { return products_.out(); }
  ParamHandle weight() const { return products_.weight(); }
  // x (R, in), y (R, out), any rows
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x) const;
  void backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const;

 private:
  ColumnLinear products_;
};

// Inputs are split: each rank computes a partial sum of every output; the bias is added to the sum.
class RowLinear {
 public:
  RowLinear() = default;
  RowLinear(ParameterList& list, const Layout& layout, const std::string& name, int64_t out,
            int64_t in, const DimSlice& columns, const LinearInit& init, int block);

  ParamHandle weight() const { return weight_; }
  // x (T, columns), y (T / split, out)
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x) const;
  // dx (T, columns) = dy w; overwrites. dy (T / split, out). Returns dy of all tokens for
  // backward_weight(); it may show dy itself.
  AllTokens backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& dy_all,
                       const ConstTensor& x) const;

 private:
  ParamHandle weight_ = -1;
  ParamHandle bias_ = -1;
  LowRank adapters_;
};

}  // namespace trireme
