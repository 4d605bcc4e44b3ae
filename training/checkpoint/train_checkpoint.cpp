#include "training/checkpoint/train_checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/observe/log.h"
#include "engine/ops/rows/transfer.h"
#include "training/checkpoint/compression_checkpoint.h"
#include "training/checkpoint/outer_checkpoint.h"
#include "transformer/checkpoint/checkpoint_parameters.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/checkpoint/finite_weights.h"
#include "transformer/checkpoint/model_bundle.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace {

std::vector<StoredArray> stored_arrays(const TrainState& state) {
  std::vector<StoredArray> out{{kKindParam, state.store.flat_values(), state.store.value_map()}};
  for (const FlatOptimizer::State& s : state.optimizer.states())
    out.push_back({s.kind, s.flat, state.store.state_map()});
  return out;
}

Json step_state_to_json(const StepState& s) {
  return {{"loss_scale", s.loss_scale},
          {"updates", s.updates},
          {"skipped", s.skipped},
          {"consecutive_skips", s.consecutive_skips},
          {"good_since_growth", s.good_since_growth},
          {"hysteresis_left", s.hysteresis_left},
          {"grad_norm", s.grad_norm}};
}

StepState step_state_from_json(const Json& j) {
  StepState s;
  s.loss_scale = j.at("loss_scale").get<double>();
  s.updates = j.at("updates").get<int64_t>();
  s.skipped = j.at("skipped").get<int64_t>();
  s.consecutive_skips = j.at("consecutive_skips").get<int64_t>();
  s.good_since_growth = j.at("good_since_growth").get<int64_t>();
  s.hysteresis_left = j.at("hysteresis_left").get<int64_t>();
  // The norm of a skipped step is not finite and was written as null.
  s.grad_norm = j.at("grad_norm").is_number() ? j.at("grad_norm").get<double>() : 0.0;
  return s;
}

// Parts of the tensors that this rank owns and writes; other ranks may store copies.
std::vector<CheckpointPart> owned_parts(const TrainState& state) {
  std::vector<CheckpointPart> parts;
  for (const StoredArray& stored : stored_arrays(state))
    add_parts(state.store, stored, state.store.owned(), parts);
  return parts;
}

// Loads the fp8 state. A checkpoint of a run without fp8 has none; the next step then behaves like
// the first step of a run.
void load_float8(Ctx& ctx, const CheckpointReader& reader, const Model& model) {
  if (model.float8() == nullptr) return;
  const std::vector<Float8State::Named> tensors = model.float8()->saved();
  if (tensors.empty() || reader.find(kKindFloat8, tensors.front().name) == nullptr) return;
  for (const Float8State::Named& t : tensors) {
    const std::vector<int64_t> shape = dims_of(t.tensor.shape());
    const CheckpointTensor& stored = reader.require(kKindFloat8, t.name, t.tensor.dtype(), shape);
    fill_from_host(ctx, t.tensor, [&](const Tensor& piece, int64_t first) {
      reader.read(stored, whole_box(shape), first, piece);
    });
  }
  model.float8()->set_has_history();
}

// Adds the fp8 state of this rank's layers. All ranks with these layers have the same state; one of
// them adds it.
void add_float8_parts(const Model& model, const Layout& layout,
                      std::vector<CheckpointPart>& parts) {
  if (model.float8() == nullptr || !model.float8()->has_history()) return;
  if (layout.tp.index != 0 || layout.dp.index != 0 || layout.cp.index != 0) return;
  for (const Float8State::Named& t : model.float8()->saved())
    parts.push_back({kKindFloat8, t.name, dims_of(t.tensor.shape()), {}, 0, t.tensor});
}

// Calls take() with the bytes of `data` in order.
void read_bytes(Ctx& ctx, const ConstTensor& data,
                const std::function<void(std::span<const std::byte>)>& take) {
  read_on_host(ctx, data.reshape({data.numel()}), [&](const ConstTensor& part, int64_t) {
    take({static_cast<const std::byte*>(part.raw()), static_cast<size_t>(part.bytes())});
  });
}

}  // namespace

SavedCheckpoint save_train_checkpoint(Ctx& ctx, const RunConfig& config, const TrainState& state,
                                      const TrainPosition& position, const Groups& groups,
                                      const CheckpointSources& sources) {
  std::vector<CheckpointPart> parts = owned_parts(state);
  if (groups.world.rank() == 0)
    for (const RouterState::Named& t : router_tensors(state.model))
      parts.push_back({kKindRouter, t.name, dims_of(t.tensor.shape()), {}, 0, t.tensor});
  add_float8_parts(state.model, groups.layout, parts);
  add_compression_parts(state, parts);
  name_site_parts(state, parts);
  add_outer_parts(state, parts);
  Communicator& all = sources.all_sites != nullptr ? *sources.all_sites : groups.world;
  const Json step_state = step_state_to_json(state.read_step_state(ctx));
  Json json = {{"step", position.step},
               {"consumed_samples", position.consumed_samples},
               {kConsecutiveSkips, position.consecutive_skips},
               {"step_state", step_state},
               {"config", run_config_to_json(config)}};
  if (state.site.size > 1) {
    const std::vector<std::string> states = all.all_gather_strings(step_state.dump());
    for (size_t rank = 0; rank < states.size(); rank += static_cast<size_t>(groups.world.size()))
      json[kSiteStepStates].push_back(Json::parse(states[rank]));
  }
  if (state.outer != nullptr) json[kOuterRounds] = outer_rounds_to_json(*state.outer);
  if (sources.lineage != nullptr) json["origin"] = lineage_to_json(*sources.lineage);
  if (sources.data != nullptr) json["data"] = data_identity_to_json(*sources.data);
  const CheckpointRanks ranks{
      .rank = all.rank(),
      .size = all.size(),
      .gather = [&](const std::string& mine) { return all.all_gather_strings(mine); },
      .broadcast = [&](const std::string& value) { return all.broadcast_string(value, 0); }};
  return save_checkpoint(
      {.root = config.checkpoint.save,
       .step = position.step,
       .keep_last = config.checkpoint.keep_last,
       .counts = [](const CheckpointReader& r) { return skipped_steps_problem(r).empty(); },
       .read = [&](const ConstTensor& data, int64_t,
                   const auto& take) { read_bytes(ctx, data, take); }},
      parts, json, ranks);
}

TrainPosition load_train_checkpoint(Ctx& ctx, CheckpointReader whole, TrainState& state) {
  const int site = saved_site(whole, state.data_site.index);
  const CheckpointReader reader(std::move(whole), site_variant(site));
  for (const StoredArray& stored : stored_arrays(state))
    read_stored(ctx, reader, state.store, stored);
  load_routers(ctx, reader, state.model);
  load_float8(ctx, reader, state.model);
  load_compression(ctx, reader, state);
  load_outer(ctx, reader, state);
  TrainPosition position;
  with_state(reader, [&](const Json& json) {
    const StepState step_state = step_state_from_json(
        json.contains(kSiteStepStates) ? json[kSiteStepStates].at(static_cast<size_t>(site))
                                       : json.at("step_state"));
    state.write_step_state(ctx, step_state);
    position = {json.at("step").get<int64_t>(), json.at("consumed_samples").get<int64_t>(),
                json.value(kConsecutiveSkips, int64_t{0})};
  });
  return position;
}

void load_initial_weights(Ctx& ctx, const std::string& path, const std::string& adapter,
                          bool begins, TrainState& state) {
  const std::unique_ptr<ModelSource> source = open_found_model(path);
  const ModelConfig& wanted = state.model.config();
  source->check(wanted);
  const Json of_source = model_config_to_json(source->config()).flatten();
  const Json of_run = model_config_to_json(wanted).flatten();
  for (const auto& [key, value] : of_run.items())
    if (const bool same = of_source.contains(key) && of_source[key] == value; !same)
      log_info("model.", key.substr(1), " is ", value.dump(), ", but ",
               of_source.contains(key) ? of_source[key].dump() : "unset", " in the model ", path);
  state.store.initialize(ctx, ctx.seed, false);  // adapters; frozen weights are read below
  source->load(ctx, state.model, state.store);
  std::string bad = find_non_finite(ctx, state.store);
  if (bad.empty()) bad = find_non_finite(state.model);
  if (!bad.empty())
    fail_input(path, ": ", bad, ", so that every step from these weights would be skipped");
  if (!adapter.empty())
    PeftAdapter(adapter).load_adapters(ctx, state.model, state.store);
  else if (begins)
    source->load_row_norms(ctx, state.model, state.store);
  state.optimizer.initialize(ctx);
}

std::vector<TokenFileIdentity> saved_data_identity(const CheckpointReader& reader) {
  std::vector<TokenFileIdentity> files;
  with_state(reader, [&](const Json& json) {
    if (json.contains("data")) files = data_identity_from_json(json["data"]);
  });
  return files;
}

RunConfig checkpoint_run_config(const CheckpointReader& reader) {
  RunConfig config;
  with_state(reader, [&](const Json& json) {
    try {
      config = resolved_run_config(json.at("config"));
    } catch (const InputError& e) {
      fail_input("checkpoint ", reader.directory(), ": ", e.what());
    }
    config.finetune.recorded_chat_templates = lineage_from_json(json).chat_templates;
  });
  return config;
}

}  // namespace trireme
