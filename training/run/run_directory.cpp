#include "training/run/run_directory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/config/override.h"
#include "engine/core/tensor.h"
#include "engine/io/atomic_file.h"
#include "engine/io/file_error.h"
#include "engine/io/strict_json.h"
#include "engine/observe/metrics.h"
#include "optim/schedule.h"
#include "training/checkpoint/train_checkpoint.h"
#include "training/data/batch_source.h"
#include "training/report/run_records.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/checkpoint/lineage.h"
#include "transformer/checkpoint/model_bundle.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

std::string latest_path(const RunConfig& config) {
  return (fs::path(config.checkpoint.save) / "latest").string();
}

// True if output_dir has records, or checkpoint.save has a checkpoint, even a damaged one.
bool holds_run(const RunConfig& config) {
  if (is_present(metrics_path(config)) || is_present(latest_path(config))) return true;
  const NewestCheckpoint newest = find_newest_whole(config.checkpoint.save, false);
  return !newest.directory.empty() || !newest.skipped.empty();
}

// Keys that determine the training trajectory, and those of the schedule: {"/a/b": value}.
Json trajectory_keys(const RunConfig& config) {
  Json json = run_config_to_json(config);
  for (const Key& key : run_schema().keys()) {
    const bool schedule = key.path == "train_steps" || key.path.starts_with("scheduler.");
    if (key.status == KeyStatus::kImplemented && !key.is_trajectory && !schedule)
      erase_path(json, key.path);
  }
  return json.flatten();
}

// List of the keys whose values differ, "KEY before -> now, ...", for errors.
std::string differences(const RunConfig& saved, const RunConfig& wanted) {
  std::string out;
  const Json before = trajectory_keys(saved), now = trajectory_keys(wanted);
  for (const auto& [path, value] : now.items()) {
    if (before.contains(path) && before[path] == value) continue;
    std::string key = path.substr(1);
    std::ranges::replace(key, '/', '.');
    out += concat(out.empty() ? "" : ", ", key, " ",
                  before.contains(path) ? before[path].dump() : "unset", " -> ", value.dump());
  }
  return out.substr(0, 600);
}

RunConfig read_resolved(const std::string& path) {
  const Json json = parse_json_text<Json>(read_small_file(path));
  try {
    return resolved_run_config(json);
  } catch (const InputError& e) {
    fail_input(path, " is not a configuration of this version (", e.what(),
               "); remove it or use another output_dir");
  }
}

double rate_of(const RunConfig& config, int64_t step) {
  return learning_rate(config.scheduler, config.optimizer.lr, step, config.train_steps);
}

// Advice on how a run of `config` can keep the learning rates of the steps that `saved` completed.
std::string advice_for_rates(const SchedulerConfig& saved, const SchedulerConfig& config) {
  const bool wsd = saved.style == DecayStyle::kWsd;
  std::string keys;
  const auto keep = [&](const char* key, int64_t before, int64_t now) {
    if (before != now) keys += concat(keys.empty() ? "set " : " and ", key, " to ", before);
  };
  keep("scheduler.params.warmup_steps", saved.warmup_steps, config.warmup_steps);
  if (!wsd) keep("scheduler.params.decay_steps", saved.decay_steps, config.decay_steps);
  if (!wsd) return keys.empty() ? "" : keys + "; or ";
  return concat(keys, keys.empty() ? "" : " and ",
                "continue a checkpoint from before the decay, --resume CHECKPOINT with another "
                "output_dir; or ");
}

void check_past_rates(const RunConfig& saved, const RunConfig& config, int64_t steps_done,
                      const ResumePlan& plan) {
  const std::string& checkpoint = plan.checkpoint;
  for (int64_t step = 0; step < steps_done; ++step) {
    if (rate_of(saved, step) == rate_of(config, step)) continue;
    fail_input(checkpoint, " ran step ", step + 1, " with learning rate ", rate_of(saved, step),
               ", but this configuration (", differences(saved, config), ") gives it ",
               rate_of(config, step), "; completed steps must keep their learning rates: ",
               advice_for_rates(saved.scheduler, config.scheduler), "set them back, or ",
               advice_for_another_run(config, plan));
  }
}

void check_same_data(const RunConfig& config, const CheckpointReader& reader,
                     const std::vector<TokenFileIdentity>& data, ResumePlan& plan) {
  if (data.empty()) return;
  const std::vector<TokenFileIdentity> saved = saved_data_identity(reader);
  if (saved.empty())
    plan.notes.push_back(
        concat(plan.checkpoint, " does not record its token files, because an ",
               "earlier version saved it: cannot check whether they have changed"));
  if (const std::string changed = changed_file(saved, data); !changed.empty())
    fail_input(plan.checkpoint, ": ", changed, "; put the file back, or ",
               advice_for_another_run(config, plan));
}

// Checks that the plan's checkpoint belongs to a run of `config`; adds notes to the plan.
void check_same_run(const RunConfig& config, const std::vector<TokenFileIdentity>& data,
                    ResumePlan& plan) {
  const CheckpointReader reader(plan.checkpoint);
  const RunConfig saved = checkpoint_run_config(reader);
  if (!same_trajectory(saved, config))
    fail_input(plan.checkpoint, " belongs to a run with another configuration (",
               differences(saved, config), "); set them back, or ",
               advice_for_another_run(config, plan));
  check_past_rates(saved, config, reader.step(), plan);
  check_same_data(config, reader, data, plan);
  if (saved.outer.sites != config.outer.sites)
    plan.notes.push_back(concat("outer.sites ", saved.outer.sites, " -> ", config.outer.sites,
                                ": site i continues site i modulo ", saved.outer.sites));
  if (saved.train_steps == config.train_steps || config.finetune.enabled) return;
  const std::string change = order_change(
      config.data,
      {.sequence_length = config.sequence_length, .vocab_size = config.model.vocab_size},
      checked_mul(saved.train_steps, saved.train_batch_size),
      checked_mul(config.train_steps, config.train_batch_size));
  if (!change.empty())
    plan.notes.push_back(
        concat("train_steps ", saved.train_steps, " -> ", config.train_steps, ": ", change));
}

// True if the model at `place` is the one that `path` names, or is in that folder.
bool lies_at(const std::string& place, const std::string& path) {
  const auto full = [](const std::string& p) { return fs::absolute(p).lexically_normal(); };
  const fs::path rest = full(place).lexically_relative(full(checkpoints_directory(path)));
  return !rest.empty() && *rest.begin() != "..";
}

// Checks that the records in output_dir are this run's, since a resumed run adds to them. If there
// is no resolved_config.json, only the run's own checkpoint can show it. Returns true if output_dir
// has a resolved_config.json.
bool check_records(const RunConfig& config, bool own_checkpoint) {
  const fs::path resolved = fs::path(config.output_dir) / "resolved_config.json";
  std::error_code ignored;
  if (!fs::exists(resolved, ignored)) {
    if (!own_checkpoint && fs::exists(metrics_path(config), ignored))
      fail_input("output_dir ", config.output_dir, " holds records of a run but no ",
                 "resolved_config.json, so the run is unknown; use another output_dir");
    return false;
  }
  const RunConfig saved = read_resolved(resolved.string());
  if (same_trajectory(saved, config)) return true;
  fail_input("output_dir ", config.output_dir, " holds the records of another run (",
             differences(saved, config), "); use another output_dir");
}

constexpr const char* kStartAnew =
    "put it back (is its file system mounted?), or start a new run in another output_dir";

// Step of the last record; 0: none.
int64_t last_record(const RunConfig& config) {
  if (!is_present(metrics_path(config))) return 0;
  const std::vector<Json> records = read_metrics(metrics_path(config));
  return records.empty() ? 0 : records.back()["step"].get<int64_t>();
}

// File with the name of the run's newest checkpoint. It is there even if checkpoint.save is not
// mounted.
std::string saved_mark(const RunConfig& config) {
  return (fs::path(config.output_dir) / "last_checkpoint").string();
}

// For --resume auto without a complete checkpoint: InputError unless it is certain that no
// checkpoint was saved. A new run would otherwise replace the earlier run's checkpoints one by one.
void check_nothing_saved(const RunConfig& config, const std::vector<std::string>& damaged) {
  const std::string& save = config.checkpoint.save;
  if (!damaged.empty()) {
    std::string list;
    for (const std::string& one : damaged) list += "\n  " + one;
    fail_input("--resume auto: none of the ", damaged.size(), " checkpoints in ", save,
               " is complete, and a new run would overwrite them:", list,
               "\nrepair one, or move them away with their records, or start a new run in another ",
               "output_dir");
  }
  if (is_present(latest_path(config)))
    fail_input("--resume auto: ", latest_path(config), " names a checkpoint, but ", save,
               " holds none; ", kStartAnew);
  if (const std::string mark = saved_mark(config); is_present(mark))
    fail_input("--resume auto: ", mark, " names a checkpoint, but ", save, " holds none; ",
               kStartAnew);
  const fs::path resolved = fs::path(config.output_dir) / "resolved_config.json";
  if (!is_present(resolved.string())) return;
  if (config.outer.is_remote()) return;  // a site that has joined a run has records of later steps
  // A record of a later step shows that the checkpoint had been saved.
  const CheckpointConfig saved = read_resolved(resolved.string()).checkpoint;
  const int64_t last = last_record(config);
  if (saved.save_interval <= 0 || last <= saved.save_interval) return;
  fail_input("--resume auto: ", metrics_path(config), " has ", last,
             " steps of a run that saved every ", saved.save_interval, " in ", saved.save, ", but ",
             save, " has no checkpoint; ", kStartAnew);
}

}  // namespace

std::string advice_for_weights(const RunConfig& config, const std::string& checkpoint) {
  if (config.finetune.enabled) return concat("start a new run with checkpoint.load ", checkpoint);
  return concat("start a new run from the weights alone: trireme checkpoint convert ", checkpoint,
                " weights --to hf, then checkpoint.load \"weights\"");
}

std::string advice_for_another_run(const RunConfig& config, const ResumePlan& plan) {
  if (plan.is_own) return "use another output_dir";
  return concat(advice_for_weights(config, plan.checkpoint),
                plan.is_named ? " without --resume" : "",
                holds_run(config) ? " and another output_dir" : "");
}

RunLock::RunLock(const RunConfig& config) : output_("output_dir", config.output_dir) {
  std::error_code ignored;
  if (fs::equivalent(config.output_dir, config.checkpoint.save, ignored)) return;
  save_ = std::make_unique<DirectoryLock>("checkpoint.save", config.checkpoint.save);
}

bool RunLock::holds() const { return output_.holds() && (save_ == nullptr || save_->holds()); }

void write_saved_mark(const RunConfig& config, const std::string& directory) {
  write_file_atomically(saved_mark(config), directory + "\n");
}

void check_own_records(const RunConfig& config) { check_records(config, false); }

ResumePlan plan_resume(const RunConfig& config, const std::string& resume,
                       const std::vector<TokenFileIdentity>& data) {
  ResumePlan plan;
  if (resume.empty() && holds_run(config))
    fail_input("output_dir ", config.output_dir,
               " holds another run; continue it with --resume auto, or choose another output_dir");
  if (resume == "auto") {
    const NewestCheckpoint newest = find_newest_good(config.checkpoint.save);
    if (newest.directory.empty()) check_nothing_saved(config, newest.skipped);
    plan.notes = newest.skipped;
    plan.checkpoint = newest.directory;
    plan.is_own = !plan.checkpoint.empty();
  }
  if (const bool path = !resume.empty() && resume != "auto"; path || plan.checkpoint.empty()) {
    plan.is_named = path;
    const std::string& from = path ? resume : config.checkpoint.load;
    if (path && is_model_source(from))
      fail_input("--resume ", from,
                 ": a third-party model has weights but no run to continue; set ",
                 "checkpoint.load to it");
    if (is_model_source(from)) {
      plan.weights = from;
    } else if (!from.empty()) {
      NewestCheckpoint found = find_checkpoint(checkpoints_directory(from));
      (config.finetune.enabled && !path ? plan.weights : plan.checkpoint) =
          std::move(found.directory);
      std::ranges::move(found.skipped, std::back_inserter(plan.notes));
    }
  }
  if (!plan.checkpoint.empty() && is_imported_state(CheckpointReader(plan.checkpoint).state()))
    plan.weights = std::exchange(plan.checkpoint, "");
  if (depends_on_base(config.finetune) && !plan.checkpoint.empty()) {
    plan.weights = find_base(plan.checkpoint, config.checkpoint.load);
    if (!lies_at(plan.weights, config.checkpoint.load))
      plan.notes.push_back(concat("continuing with the run's base model ", plan.weights,
                                  " instead of checkpoint.load ", config.checkpoint.load,
                                  ", which is another model"));
  }
  if (!plan.weights.empty()) open_found_model(plan.weights)->check(config.model);
  // A checkpoint has the trained adapters, but the reference model of preferences needs the initial
  // ones.
  const FinetuneConfig& finetune = config.finetune;
  if (plan.checkpoint.empty() || learns_from_pairs(finetune))
    plan.adapter = finetune.initial_adapter;
  if (!plan.adapter.empty()) PeftAdapter(plan.adapter).check_beginning(config.model, finetune.lora);
  if (std::string lost = lost_in_peft(config.model, finetune.lora); !lost.empty())
    plan.notes.push_back(std::move(lost));
  if (!plan.checkpoint.empty()) check_same_run(config, data, plan);
  if (!resume.empty() && check_records(config, plan.is_own) && plan.checkpoint.empty())
    plan.notes.push_back("no checkpoint yet: the run starts at step 0");
  return plan;
}

void write_run_directory(const RunConfig& config) {
  std::error_code error;
  fs::create_directories(config.output_dir, error);
  if (error) fail_input("output_dir ", config.output_dir, " cannot be created: ", error.message());
  write_file_atomically((fs::path(config.output_dir) / "resolved_config.json").string(),
                        run_config_to_json(config).dump(2) + "\n");
}

}  // namespace trireme
