#include "training/train_checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

// The flat tensors of a run by kind: parameters and optimizer states share one layout.
std::vector<FlatOptimizer::State> flat_tensors(const TrainState& state) {
  std::vector<FlatOptimizer::State> out = state.optimizer.states();
  out.insert(out.begin(), {kKindParam, state.store.flat_values()});
  return out;
}

std::vector<int64_t> dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
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
  // A skipped step's norm is not finite and was written as null.
  s.grad_norm = j.at("grad_norm").is_number() ? j.at("grad_norm").get<double>() : 0.0;
  return s;
}

// state() with errors that name the checkpoint instead of a JSON library.
template <class F>
auto with_state(const CheckpointReader& reader, F&& f) {
  try {
    return f(reader.state());
  } catch (const nlohmann::json::exception& e) {
    fail_input("checkpoint ", reader.directory(),
               ": its training state is not what this version "
               "writes (",
               e.what(), ")");
  }
}

// This rank's box of a saved tensor.
void read_box(const CheckpointReader& reader, const CheckpointTensor& tensor,
              const ParameterSpec& spec, const Tensor& destination) {
  if (destination.numel() == 0) return;
  const TensorBox box = spec.box.extent.empty() ? whole_box(dims_of(spec.shape)) : spec.box;
  reader.read(tensor, box, 0, destination);
}

}  // namespace

SavedCheckpoint save_train_checkpoint(const RunConfig& config, const TrainState& state,
                                      const TrainPosition& position, const Groups& groups) {
  // What data-parallel ranks hold is the same on each: the next tensor is written by the one that has
  // the fewest bytes so far.
  std::array<std::vector<int64_t>, kRegions> load;
  load[0].resize(static_cast<size_t>(groups.layout.data.size), 0);
  load[1].resize(static_cast<size_t>(groups.layout.edp.size), 0);
  const std::array<int, kRegions> own{groups.layout.data.index, groups.layout.edp.index};
  std::vector<CheckpointPart> parts;
  for (const FlatOptimizer::State& flat : flat_tensors(state)) {
    for (size_t h = 0; h < state.store.specs().size(); ++h) {
      const ParameterSpec& spec = state.store.specs()[h];
      if (spec.copy != 0) continue;
      const Tensor view = state.store.view_in(flat.flat, static_cast<ParamHandle>(h));
      const auto region = static_cast<size_t>(spec.region);
      const auto writer = std::ranges::min_element(load[region]);
      *writer += view.bytes();
      if (writer - load[region].begin() != own[region]) continue;
      parts.push_back({flat.kind, spec.name, dims_of(spec.shape), spec.box, 0, view});
    }
  }
  StepState step_state;
  std::memcpy(&step_state, state.step_state().raw(), sizeof step_state);
  const Json json = {{"step", position.step},
                     {"consumed_samples", position.consumed_samples},
                     {"step_state", step_state_to_json(step_state)},
                     {"config", run_config_to_json(config)}};
  const CheckpointRanks ranks{
      .rank = groups.world.rank(),
      .size = groups.world.size(),
      .gather = [&](const std::string& mine) { return groups.world.all_gather_strings(mine); },
      .broadcast =
          [&](const std::string& value) { return groups.world.broadcast_string(value, 0); }};
  return save_checkpoint({.root = config.checkpoint.save,
                          .step = position.step,
                          .keep_last = config.checkpoint.keep_last},
                         parts, json, ranks);
}

TrainPosition load_train_checkpoint(const CheckpointReader& reader, TrainState& state) {
  for (const FlatOptimizer::State& flat : flat_tensors(state))
    for (size_t h = 0; h < state.store.specs().size(); ++h) {
      const ParameterSpec& spec = state.store.specs()[h];
      const CheckpointTensor& tensor =
          reader.require(flat.kind, spec.name, flat.flat.dtype(), dims_of(spec.shape));
      read_box(reader, tensor, spec, state.store.view_in(flat.flat, static_cast<ParamHandle>(h)));
    }
  return with_state(reader, [&](const Json& json) {
    const StepState step_state = step_state_from_json(json.at("step_state"));
    std::memcpy(state.step_state().raw(), &step_state, sizeof step_state);
    return TrainPosition{json.at("step").get<int64_t>(),
                         json.at("consumed_samples").get<int64_t>()};
  });
}

RunConfig checkpoint_run_config(const CheckpointReader& reader) {
  return with_state(reader, [&](const Json& json) {
    try {
      return resolved_run_config(json.at("config"));
    } catch (const InputError& e) {
      fail_input("checkpoint ", reader.directory(), ": ", e.what());
    }
  });
}

NewestCheckpoint find_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(path)) fail_input(path, ": no such run or checkpoint directory");
  if (fs::exists(fs::path(path) / kManifestName)) {
    if (const std::vector<std::string> damage = CheckpointReader(path).verify(); !damage.empty())
      fail_input(
          "checkpoint ", path, " is damaged: ", damage.front(),
          damage.size() > 1 ? concat(" (and ", damage.size() - 1, " more)") : "",
          "; use another checkpoint, or the run directory, where the newest whole one is found");
    return {path, {}};
  }
  const fs::path inside = fs::path(path) / "checkpoints";
  const std::string root = fs::is_directory(inside) ? inside.string() : path;
  const NewestCheckpoint newest = find_newest_whole(root);
  if (newest.directory.empty())
    fail_input(path,
               " holds no whole checkpoint; give a run directory, its checkpoints/ folder or "
               "one step-NNNNNNNN folder");
  return newest;
}

void load_parameters(const CheckpointReader& reader, ParameterStore& store) {
  for (size_t h = 0; h < store.specs().size(); ++h) {
    const ParameterSpec& spec = store.specs()[h];
    const CheckpointTensor& tensor =
        reader.require(kKindParam, spec.name, store.dtype(), dims_of(spec.shape));
    read_box(reader, tensor, spec, store.view_in(store.flat_values(), static_cast<ParamHandle>(h)));
  }
}

}  // namespace trireme
