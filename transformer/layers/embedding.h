// Token embedding, optionally scaled (Gemma, Granite), with learned positions (GPT-2) and dropout.
// The table is split by rows over the tensor-parallel ranks: each looks up the tokens of its rows,
// and the results are summed.
#pragma once

#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/embedding.h"
#include "transformer/config/model_config.h"
#include "transformer/pass/sharding.h"
#include "transformer/pass/tensor_parallel_mappings.h"

namespace trireme {

class Embedding {
 public:
  // shared: another pipeline stage holds a copy of the table as its head.
  Embedding(const ModelConfig& config, const Layout& layout, ParameterList& list, int block,
            bool shared);

  ParamHandle token_table() const { return tokens_; }  // (V, C), shared with a tied head
  Activation forward(Pass& pass) const;                // (T / split, C) from pass.tokens
  // Writes the gradients of the tables; no effect if they are frozen. dy (T / split, C).
  void backward(Pass& pass, Activation dy) const;

 private:
  bool drops(const Pass& pass) const;
  int64_t width_;
  double dropout_;
  double scale_;
  FactorRounding rounding_;  // of scale_
  TableShard shard_;
  ParamHandle tokens_ = -1;
  ParamHandle positions_ = -1;
};

// Returns the parameter of the token embedding, a (V, C) table split by rows over the
// tensor-parallel ranks. copies: 2 if the first and last pipeline stages each hold a copy of a tied
// table, else 1. copy: 0 for the embedding, 1 for the last stage's copy.
ParameterSpec embedding_table(const ModelConfig& config, const Layout& layout, int block,
                              int copies, int copy);

}  // namespace trireme
