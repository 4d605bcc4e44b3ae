#include "training/checkpoint/outer_checkpoint.h"

#include <nlohmann/json.hpp>

#include "engine/io/checkpoint_manifest.h"
#include "engine/observe/log.h"
#include "training/checkpoint/compression_checkpoint.h"
#include "transformer/checkpoint/checkpoint_parameters.h"
#include "transformer/checkpoint/model_bundle.h"

namespace trireme {
namespace {

constexpr const char *kOuterMomentum = "outer.momentum", *kOuterLocal = "outer.local";
constexpr const char* kOuterPrefix = "outer.";

// Ending of the kinds of a site's own tensors.
std::string site_variant(int site) { return site == 0 ? "" : concat(".site.", site); }

// Calls use(state) for each region that the sites exchange.
template <class Use>
void for_each_region(const TrainState& state, const Use& use) {
  for (const Region region : kTrainedRegions)
    if (state.outer != nullptr && state.outer->region(region) != nullptr)
      use(*std::as_const(*state.outer).region(region));
}

// Name of the first trained parameter.
const std::string* first_trained(const ParameterStore& store) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
    if (store.trained(h)) return &store.specs()[static_cast<size_t>(h)].name;
  return nullptr;
}

}  // namespace

int choose_site(const TrainState& state, CheckpointReader& reader) {
  int saved = 1;
  with_state(reader, [&](const Json& json) {
    if (json.contains(kSiteStepStates)) saved = static_cast<int>(json[kSiteStepStates].size());
  });
  if (saved < 1) fail_input("checkpoint ", reader.directory(), ": ", kSiteStepStates, " is empty");
  reader.set_variant(site_variant(state.site.index % saved));
  return saved;
}

void name_site_parts(const TrainState& state, std::vector<CheckpointPart>& parts) {
  if (state.site.index == 0) return;
  std::erase_if(parts, [](const CheckpointPart& part) {
    return part.kind == kKindParam || part.kind == kKindMaster;
  });
  for (CheckpointPart& part : parts) part.kind += site_variant(state.site.index);
}

void add_outer_parts(const TrainState& state, std::vector<CheckpointPart>& parts) {
  for_each_region(state, [&](const OuterState::RegionState& its) {
    const ShardMap map = its.map();
    if (its.momentum.present() && state.site.index == 0)
      add_parts(state.store, {kOuterMomentum, its.momentum, map}, map, parts);
    if (state.outer->apart)
      add_parts(state.store, {kOuterLocal + site_variant(state.site.index), its.local, map}, map,
                parts);
    add_exchange_parts(state.store, its.exchange, kOuterPrefix, parts);
  });
}

void load_outer(Ctx& ctx, const CheckpointReader& reader, TrainState& state) {
  if (state.outer == nullptr) {
    const auto is_outer = [](const CheckpointTensor& t) {
      return t.kind.starts_with(kOuterPrefix);
    };
    if (std::ranges::any_of(reader.manifest().tensors, is_outer))
      log_warning("this run has one site and continues from the weights that the sites of ",
                  reader.directory(), " share: their momentum, residuals and own weights are ",
                  "dropped");
    return;
  }
  const std::string* const name = first_trained(state.store);
  if (name == nullptr) return;
  state.outer->apart = reader.find(kOuterLocal, *name) != nullptr;
  const bool moves = reader.find(kOuterMomentum, *name) != nullptr;
  for_each_region(state, [&](const OuterState::RegionState& its) {
    const ShardMap map = its.map();
    if (its.momentum.present() && moves)
      read_stored(ctx, reader, state.store, {kOuterMomentum, its.momentum, map});
    if (state.outer->apart) read_stored(ctx, reader, state.store, {kOuterLocal, its.local, map});
    load_exchange(ctx, reader, state.store, its.exchange, kOuterPrefix);
  });
}

}  // namespace trireme
