// RMSNorm of queries and keys (Henry et al. 2020, "Query-Key Normalization"), of each head by
// itself (Qwen3; without weights in Llama 4) or of all heads together (OLMo 2).
#pragma once

#include <memory>

#include "transformer/config/model_config.h"
#include "transformer/pass/pass.h"
#include "transformer/pass/sharding.h"

namespace trireme {

// Operands are packed queries and keys, (T, (H + Hkv) D), of this rank's heads, with unit stride in
// the columns.
class QueryKeyNorm {
 public:
  // Statistics of one forward: per head, (T, H) and (T, Hkv), or per token, (T).
  struct Saved {
    Activation q_rstd, k_rstd;
  };
  QueryKeyNorm() = default;
  QueryKeyNorm(const QueryKeyNorm&) = delete;
  QueryKeyNorm& operator=(const QueryKeyNorm&) = delete;
  virtual ~QueryKeyNorm() = default;

  // Normalizes qk into `out`, which may alias it if no backward follows.
  virtual Saved forward(Pass& pass, const Tensor& out, const ConstTensor& qk) const = 0;
  // Replaces the gradient `d` of the output by that of qk, and writes the weights' gradients.
  virtual void backward(Pass& pass, const Tensor& d, const ConstTensor& qk,
                        const Saved& saved) const = 0;
};

// Returns the model's norm of queries and keys; adds its two weights, if any, under `prefix`.
std::unique_ptr<QueryKeyNorm> make_query_key_norm(const ModelConfig& config, const Layout& layout,
                                                  ParameterList& list, const std::string& prefix,
                                                  int block);

}  // namespace trireme
