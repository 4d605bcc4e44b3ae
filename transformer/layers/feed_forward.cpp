#include "transformer/layers/feed_forward.h"

#include "transformer/families/family.h"
#include "transformer/layers/mlp.h"
#include "transformer/layers/moe.h"

namespace trireme {
namespace {

Mlp::Deferred backward_input_of(const Mlp& mlp, Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                const ConstTensor& /*x*/, Mlp::Saved& saved) {
  return mlp.backward_input(pass, dx, dy, saved);
}
Moe::Deferred backward_input_of(const Moe& moe, Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                const ConstTensor& x, Moe::Saved& saved) {
  return moe.backward_input(pass, dx, dy, x, saved);
}

template <class Layer, bool kReadsInput>
class LayerFeedForward final : public FeedForward {
 public:
  template <class... Arguments>
  explicit LayerFeedForward(Arguments&&... arguments)
      : layer_(std::forward<Arguments>(arguments)...) {}

  std::unique_ptr<Saved> forward(Pass& pass, const Tensor& y, const ConstTensor& x, bool save,
                                 bool keep_act) const override {
    std::unique_ptr<LayerSaved> saved;
    if (save) saved = std::make_unique<LayerSaved>();
    layer_.forward(pass, y, x, save ? &saved->values : nullptr, keep_act);
    return saved;
  }
  bool input_pass_reads_input() const override { return kReadsInput; }
  std::unique_ptr<Deferred> backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                           const ConstTensor& x, Saved& saved) const override {
    auto deferred = std::make_unique<LayerDeferred>();
    deferred->values =
        backward_input_of(layer_, pass, dx, dy, x, static_cast<LayerSaved&>(saved).values);
    return deferred;
  }
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, const Saved& saved,
                       const Deferred& deferred) const override {
    layer_.backward_weight(pass, dy, x, static_cast<const LayerSaved&>(saved).values,
                           static_cast<const LayerDeferred&>(deferred).values);
  }
  std::vector<ParamHandle> linear_weights() const override { return layer_.linear_weights(); }

 private:
  struct LayerSaved final : Saved {
    typename Layer::Saved values;
  };
  struct LayerDeferred final : Deferred {
    typename Layer::Deferred values;
  };
  Layer layer_;
};

}  // namespace

std::unique_ptr<FeedForward> make_feed_forward(const ModelConfig& config, const Layout& layout,
                                               ParameterList& list, const std::string& prefix,
                                               int block, int layer) {
  // Experts that run in rounds dispatch their tokens again.
  if (config.moe.sparse(layer))
    return std::make_unique<LayerFeedForward<Moe, true>>(config, layout, list, prefix, block,
                                                         layer);
  return std::make_unique<LayerFeedForward<Mlp, false>>(
      config, layout, list, concat(prefix, ".", parameter_names(config).mlp), block);
}

}  // namespace trireme
