#include "transformer/formats/peft/stacked_adapters.h"

#include <algorithm>
#include <set>

#include "engine/core/error.h"

namespace trireme {
namespace {

// Upper bound of the total rank: the factors of a layer are normally some MB.
constexpr int64_t kMaxStackedRank = 1 << 16;

std::string layer_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind(".lora_"));
}

}  // namespace

StackedAdapters::StackedAdapters(std::vector<std::unique_ptr<const PeftAdapter>> adapters,
                                 const ModelConfig& config, const AdapterSlots& adapter_slots)
    : ModelSource("adapters"), adapters_(std::move(adapters)), first_{0} {
  config_ = config;
  std::set<std::string> layers;
  for (const auto& adapter : adapters_) {
    if (adapter != nullptr && adapter_slots.count > 0 && adapter->lora().rank > adapter_slots.rank)
      fail_input(adapter->path(), " has rank ", adapter->lora().rank, "; the limit is rank ",
                 adapter_slots.rank, " (--max-lora-rank)");
    if (adapter != nullptr) check(*adapter);
    if (adapter_slots.count > 0) {
      first_.push_back(first_.back() + std::min(adapter_slots.rank, kMaxStackedRank + 1));
      continue;
    }
    for (const ModelParameter& p : adapter_parameters(config, adapter->lora()))
      layers.insert(layer_of(p.name));
    first_.push_back(first_.back() + std::min(adapter->lora().rank, kMaxStackedRank + 1));
  }
  if (adapter_slots.count > 0) layers = {"all-linear"};
  if (first_.back() > kMaxStackedRank)
    fail_input("adapters with a total rank of ", first_.back(), "; at most ", kMaxStackedRank,
               " are served together");
  lora_.rank = first_.back();
  lora_.alpha = static_cast<double>(lora_.rank);
  lora_.targets.assign(layers.begin(), layers.end());
}

void StackedAdapters::check(const PeftAdapter& adapter) const {
  if (adapter.lora().dora)
    fail_input(adapter.path(), " has magnitudes (use_dora), which are not supported together ",
               "with other adapters; serve it alone with --adapter, or merge it into a model "
               "(trireme checkpoint merge-lora)");
  adapter.check_adapters(config_);
  if (adapter.needs_merging(config_))
    fail_input(
        adapter.path(), " changes more than linear layers (modules_to_save, bias, or ",
        "adapters of the embedding, the head or a gate), which is not supported together with ",
        "other adapters; serve it alone with --adapter, or merge it into a model ",
        "(trireme checkpoint merge-lora)");
}

AdapterColumns StackedAdapters::columns(size_t adapter) const {
  return {static_cast<int32_t>(first_.at(adapter)), static_cast<int32_t>(first_.at(adapter + 1))};
}

ParameterMapping StackedAdapters::place(const ModelConfig& config,
                                        const std::string& parameter) const {
  for (const auto& adapter : adapters_)
    if (adapter != nullptr) return adapter->place(config, parameter);
  return {};
}

void StackedAdapters::read(const ModelConfig& config, const ModelParameter& parameter,
                           const TensorBox& box, int64_t begin, const Tensor& destination) const {
  const size_t inner =
      parameter.name.ends_with(".lora_A.weight") ? 0 : 1;  // inner (rank) dimension
  std::vector<float> all(static_cast<size_t>(checked_mul(box.extent[0], box.extent[1])));
  std::vector<float> tile;
  for (size_t i = 0; i < adapters_.size(); ++i) {
    if (adapters_[i] == nullptr) continue;
    const LoraConfig& lora = adapters_[i]->lora();
    const int64_t first = std::max(box.start[inner], first_[i]);
    const int64_t last = std::min(box.start[inner] + box.extent[inner], first_[i] + lora.rank);
    if (first >= last || !lora.adapts(layer_of(parameter.name))) continue;
    TensorBox own = box;
    own.start[inner] = first - first_[i];
    own.extent[inner] = last - first;
    ModelParameter theirs = parameter;
    theirs.shape[inner] = lora.rank;
    tile.resize(static_cast<size_t>(own.extent[0] * own.extent[1]));
    adapters_[i]->read(config, theirs, own, 0,
                       Tensor(tile.data(), DType::kF32, Shape{std::ssize(tile)}));
    const auto factor = static_cast<float>(inner == 1 ? lora.scale() : 1.0);
    const int64_t row0 = inner == 0 ? first - box.start[0] : 0;
    const int64_t column0 = inner == 1 ? first - box.start[1] : 0;
    place_scaled(tile, own.extent[1], factor,
                 std::span(all).subspan(static_cast<size_t>(row0 * box.extent[1] + column0)),
                 box.extent[1]);
  }
  convert_elements(destination,
                   std::span<const float>(all).subspan(static_cast<size_t>(begin),
                                                       static_cast<size_t>(destination.numel())));
}

}  // namespace trireme
