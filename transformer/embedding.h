// Token embedding, plus learned positions (GPT-2), plus dropout.
#pragma once

#include "transformer/model_config.h"
#include "transformer/pass.h"

namespace trireme {

class Embedding {
 public:
  Embedding(const ModelConfig& config, ParameterList& list, int block);

  ParamHandle token_table() const { return tokens_; }  // (V, C), shared with a tied head
  Activation forward(Pass& pass) const;                // (T, C) from pass.tokens
  void backward(Pass& pass, Activation dy) const;

 private:
  bool drops(const Pass& pass) const;
  int64_t width_;
  double dropout_;
  ParamHandle tokens_ = -1;
  ParamHandle positions_ = -1;
};

}  // namespace trireme
