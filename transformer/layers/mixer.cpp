#include "transformer/layers/mixer.h"

#include "transformer/layers/attention.h"
#include "transformer/layers/latent_attention.h"

namespace trireme {
namespace {

template <class Layer>
class LayerMixer final : public Mixer {
 public:
  template <class... Arguments>
  explicit LayerMixer(Arguments&&... arguments) : layer_(std::forward<Arguments>(arguments)...) {}

  std::unique_ptr<Saved> forward(Pass& pass, const Tensor& y, const ConstTensor& x,
                                 const ConstTensor& cos_sin, bool save) const override {
    std::unique_ptr<LayerSaved> saved;
    if (save) saved = std::make_unique<LayerSaved>();
    layer_.forward(pass, y, x, cos_sin, save ? &saved->values : nullptr);
    return saved;
  }
  std::unique_ptr<Deferred> backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                           const ConstTensor& cos_sin,
                                           Saved& saved) const override {
    auto deferred = std::make_unique<LayerDeferred>();
    deferred->values =
        layer_.backward_input(pass, dx, dy, cos_sin, static_cast<LayerSaved&>(saved).values);
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

std::unique_ptr<Mixer> make_mixer(const ModelConfig& config, const Layout& layout,
                                  ParameterList& list, const std::string& prefix, int block,
                                  int layer) {
  if (config.latent.kv_rank > 0)
    return std::make_unique<LayerMixer<LatentAttention>>(config, layout, list, prefix, block,
                                                         layer);
  return std::make_unique<LayerMixer<Attention>>(config, layout, list, prefix, block, layer);
}

}  // namespace trireme
