// Token mixer of a transformer block: the branch through which a token depends on other tokens.
// To add a kind, write a class with the interface of Attention and construct it in make_mixer().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transformer/config/model_config.h"
#include "transformer/pass/pass.h"

namespace trireme {

class Mixer {
 public:
  // Activations and statistics of one forward that backward reads. Each kind has its own.
  struct Saved {
    virtual ~Saved() = default;
  };
  // Input of backward_weight() from backward_input().
  struct Deferred {
    virtual ~Deferred() = default;
  };

  Mixer() = default;
  Mixer(const Mixer&) = delete;
  Mixer& operator=(const Mixer&) = delete;
  virtual ~Mixer() = default;

  // y = mixer(x); x, y (T / split, C). cos_sin: the layer's rotary table, absent if it has none
  // (transformer/layers/attention.h). Returns nullptr unless `save`.
  virtual std::unique_ptr<Saved> forward(Pass& pass, const Tensor& y, const ConstTensor& x,
                                         const ConstTensor& cos_sin, bool save) const = 0;
  // Overwrites dx. dx, dy (T / split, C); dy must stay valid until backward_weight(). `saved` must
  // be from this mixer's forward(). backward_weight() also reads x, the input of forward().
  virtual std::unique_ptr<Deferred> backward_input(Pass& pass, const Tensor& dx,
                                                   const ConstTensor& dy,
                                                   const ConstTensor& cos_sin,
                                                   Saved& saved) const = 0;
  virtual void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                               const Saved& saved, const Deferred& deferred) const = 0;
  // First weight of the matrix of each linear layer, in any order.
  virtual std::vector<ParamHandle> linear_weights() const = 0;
};

// Returns the mixer of the model's layer `layer`; adds its parameters, whose names begin with
// `prefix`, to parameter block `block` of `list`.
std::unique_ptr<Mixer> make_mixer(const ModelConfig& config, const Layout& layout,
                                  ParameterList& list, const std::string& prefix, int block,
                                  int layer);

}  // namespace trireme
