#include "training/checkpoint/outer_checkpoint.h"

#include <nlohmann/json.hpp>

#include "engine/io/checkpoint_manifest.h"
#include "engine/observe/log.h"
#include "training/checkpoint/compression_checkpoint.h"
#include "transformer/checkpoint/checkpoint_parameters.h"
#include "transformer/checkpoint/model_bundle.h"

namespace trireme {
namespace {

constexpr const char *kOuterMomentum = "outer.momentum", *kOuterLocal = "outer.local",
                     *kOuterUpdate = "outer.update";
constexpr const char* kOuterPrefix = "outer.";

// Name of the first trained parameter.
const std::string* first_trained(const ParameterStore& store) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
    if (store.trained(h)) return &store.specs()[static_cast<size_t>(h)].name;
  return nullptr;
}

// Whether the unit has a round with a sum that has not been applied.
bool is_open(const OuterState& state, const OuterState::Unit& unit) {
  const OuterState::OpenRound& round = state.open[static_cast<size_t>(unit.fragment)];
  return round.begun >= 0 && !round.replaced;
}

// Site whose checkpoint this is, if that site is a job of its own; -1: one of all sites.
int lone_site(const CheckpointReader& reader) {
  int site = -1;
  with_state(reader, [&](const Json& json) {
    site = json.value(Json::json_pointer("/config/outer/site"), site);
  });
  return site;
}

// Rounds that were open when the checkpoint was saved, after their exchange. own: this site, or the
// one whose weights it continues.
void load_rounds(const CheckpointReader& reader, int own, OuterState& state) {
  with_state(reader, [&](const Json& json) {
    if (!json.contains(kOuterRounds)) return;
    state.apart = json[kOuterRounds].at("apart").get<bool>();
    const Json& rounds = json[kOuterRounds].at("fragments");
    if (rounds.size() != state.open.size())
      fail_input("checkpoint ", reader.directory(), ": ", kOuterRounds, " has ", rounds.size(),
                 " fragments, this run has ", state.open.size());
    for (size_t f = 0; f < rounds.size(); ++f) {
      OuterState::OpenRound& open = state.open[f];
      open.begun = rounds[f].at("begun").get<int64_t>();
      open.report = rounds[f].at("report").get<std::vector<double>>();
      open.summed = true;
      if (open.begun >= 0 && open.report.size() < 2)
        fail_input("checkpoint ", reader.directory(), ": ", kOuterRounds, "[", f, "].report has ",
                   open.report.size(), " numbers, expected at least 2");
      if (open.begun >= 0) open.own = own % (static_cast<int>(open.report.size()) - 1);
    }
  });
}

// Rank of the exchanges with other sites.
ExchangeRank exchange_rank(const TrainState& state) {
  return {state.data_site, state.outer->config().is_remote()};
}

void warn_of_lost_residuals(const CheckpointReader& reader, const TrainState& state, int lone) {
  const auto is_residual = [](const CheckpointTensor& t) {
    return t.kind.starts_with(concat(kOuterPrefix, "residual."));
  };
  if (!state.is_first_rank || std::ranges::none_of(reader.manifest().tensors, is_residual)) return;
  const OuterConfig& config = state.outer->config();
  if (!config.compression.enabled || !config.compression.error_feedback)
    log_warning("this run keeps no residuals of updates, so those in ", reader.directory(),
                " are dropped: what its sites had not yet sent is lost");
  else if (lone >= 0 && !config.is_remote())
    log_warning(reader.directory(), " is the checkpoint of site ", lone, " alone: what the other ",
                "sites and the rendezvous had not yet sent is lost");
}

// Loads what the sites of one job hold of the outer algorithm, and the residuals of their updates.
void load_pieces(Ctx& ctx, const CheckpointReader& reader, TrainState& state) {
  const std::string* const name = first_trained(state.store);
  if (name == nullptr) return;
  const bool moves = reader.find(kOuterMomentum, *name) != nullptr;
  for (const auto& unit : state.outer->units()) {
    const ShardMap map = unit->map();
    const auto read = [&](const std::string& kind, const Tensor& array) {
      read_stored(ctx, reader, state.store, {kind, array, map});
    };
    if (unit->momentum.present() && moves) read(kOuterMomentum, unit->momentum);
    if (state.outer->apart) read(kOuterLocal, unit->own);
    if (is_open(*state.outer, *unit)) read(kOuterUpdate, unit->update);
    load_exchange(ctx, reader, state.store, unit->exchange, kOuterPrefix, exchange_rank(state));
  }
}

}  // namespace

std::string site_variant(int site) { return site == 0 ? "" : concat(".site.", site); }

int saved_site(const CheckpointReader& reader, int site) {
  int saved = 1;
  with_state(reader, [&](const Json& json) {
    if (json.contains(kSiteStepStates)) saved = static_cast<int>(json[kSiteStepStates].size());
  });
  if (saved < 1) fail_input("checkpoint ", reader.directory(), ": ", kSiteStepStates, " is empty");
  return site % saved;
}

void name_site_parts(const TrainState& state, std::vector<CheckpointPart>& parts) {
  if (state.site.index == 0) return;
  std::erase_if(parts, [](const CheckpointPart& part) {
    return part.kind == kKindParam || part.kind == kKindMaster;
  });
  for (CheckpointPart& part : parts) part.kind += site_variant(state.site.index);
}

void add_outer_parts(const TrainState& state, std::vector<CheckpointPart>& parts) {
  if (state.outer == nullptr) return;
  const bool first = state.site.index == 0;
  for (const auto& unit : state.outer->units()) {
    const ShardMap map = unit->map();
    const auto add = [&](const std::string& kind, const Tensor& array) {
      add_parts(state.store, {kind, array, map}, map, parts);
    };
    if (unit->momentum.present() && first) add(kOuterMomentum, unit->momentum);
    if (state.outer->apart) add(kOuterLocal + site_variant(state.site.index), unit->own);
    if (is_open(*state.outer, *unit) && first) add(kOuterUpdate, unit->update);
    add_exchange_parts(state.store, unit->exchange, kOuterPrefix, state.data_site.index, parts);
  }
  if (state.whole == nullptr) return;
  for (const auto& unit : std::as_const(*state.whole).state().units())
    add_exchange_parts(state.whole->store(), unit->exchange, kOuterPrefix, state.data_site.index,
                       parts);
}

Json outer_rounds_to_json(const OuterState& state) {
  Json rounds = Json::array();
  for (const OuterState::OpenRound& open : state.open)
    rounds.push_back({{"begun", open.replaced ? -1 : open.begun}, {"report", open.report}});
  return {{"apart", state.apart}, {"fragments", rounds}};
}

void load_outer(Ctx& ctx, const CheckpointReader& reader, TrainState& state) {
  if (state.outer == nullptr) {
    const auto is_outer = [](const CheckpointTensor& t) {
      return t.kind.starts_with(kOuterPrefix);
    };
    if (state.is_first_rank && std::ranges::any_of(reader.manifest().tensors, is_outer))
      log_warning("this run has one site and continues from the weights that the sites of ",
                  reader.directory(), " share: their momentum, residuals, open rounds and own ",
                  "weights are dropped");
    return;
  }
  const int lone = lone_site(reader);
  load_rounds(reader, lone >= 0 ? lone : state.data_site.index, *state.outer);
  warn_of_lost_residuals(reader, state, lone);
  load_pieces(ctx, reader, state);
  if (state.whole == nullptr) return;
  for (const auto& unit : state.whole->state().units())
    load_exchange(state.whole->host(), reader, state.whole->store(), unit->exchange, kOuterPrefix,
                  exchange_rank(state));
}

}  // namespace trireme
