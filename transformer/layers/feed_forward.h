// Feed-forward layer of a transformer block: the branch that transforms each token by itself, dense
// (Mlp) or sparse (Moe). To add a kind, write a class with their interface and construct it in
// make_feed_forward().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transformer/config/model_config.h"
#include "transformer/pass/pass.h"

namespace trireme {

class FeedForward {
 public:
  // Activations of one forward that backward reads. Each kind has its own.
  struct Saved {
    virtual ~Saved() = default;
  };
  // Input of backward_weight() from backward_input().
  struct Deferred {
    virtual ~Deferred() = default;
  };

  FeedForward() = default;
  FeedForward(const FeedForward&) = delete;
  FeedForward& operator=(const FeedForward&) = delete;
  virtual ~FeedForward() = default;

  // y = feed_forward(x); x, y (T / split, C). Returns nullptr unless `save`. keep_act = false:
  // backward recomputes the input of the last projection (selective recompute).
  virtual std::unique_ptr<Saved> forward(Pass& pass, const Tensor& y, const ConstTensor& x,
                                         bool save, bool keep_act) const = 0;
  // Returns whether backward_input() reads x.
  virtual bool input_pass_reads_input() const = 0;
  // Overwrites dx. dx, dy (T / split, C); dy must stay valid until backward_weight(). x may be
  // absent if it is not read. `saved` must be from this layer's forward(). backward_weight() always
  // reads x, the input of forward().
  virtual std::unique_ptr<Deferred> backward_input(Pass& pass, const Tensor& dx,
                                                   const ConstTensor& dy, const ConstTensor& x,
                                                   Saved& saved) const = 0;
  virtual void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                               const Saved& saved, const Deferred& deferred) const = 0;
  // First weight of the matrix of each linear layer, except those of routed experts.
  virtual std::vector<ParamHandle> linear_weights() const = 0;
};

// Returns the feed-forward layer of the model's layer `layer`; adds its parameters to parameter
// block `block` of `list`. prefix: name of the layer, "model.layers.0".
std::unique_ptr<FeedForward> make_feed_forward(const ModelConfig& config, const Layout& layout,
                                               ParameterList& list, const std::string& prefix,
                                               int block, int layer);

}  // namespace trireme
