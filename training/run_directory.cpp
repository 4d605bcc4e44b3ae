#include "training/run_directory.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/atomic_file.h"
#include "training/train_checkpoint.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

bool holds_run(const RunConfig& config) {
  std::error_code ignored;
  return fs::exists(metrics_path(config), ignored) ||
         !find_newest_whole(config.checkpoint.save, false).directory.empty();
}

// The keys whose values differ, for the message that refuses to continue another run.
std::string differences(const RunConfig& saved, const RunConfig& wanted) {
  std::string out;
  const Json before = run_config_to_json(saved).flatten();
  const Json now = run_config_to_json(wanted).flatten();
  for (const auto& [path, value] : now.items())
    if (!before.contains(path) || before[path] != value)
      out += concat(out.empty() ? "" : ", ", path.substr(1), " ",
                    before.contains(path) ? before[path].dump() : "unset", " -> ", value.dump());
  return out.substr(0, 600);
}

RunConfig read_resolved(const std::string& path) {
  std::ifstream in(path);
  const Json json = Json::parse(in, nullptr, false);
  try {
    return resolved_run_config(json);
  } catch (const InputError& e) {
    fail_input(path, " is not a configuration of this version (", e.what(),
               "); remove it or use another output_dir");
  }
}

void check_same_run(const RunConfig& config, const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  const RunConfig saved = checkpoint_run_config(reader);
  if (trajectory_hash(saved) == trajectory_hash(config)) return;
  fail_input(checkpoint, " belongs to a run with another configuration (",
             differences(saved, config), "); set them back, or use another output_dir");
}

}  // namespace

std::string metrics_path(const RunConfig& config) {
  return (fs::path(config.output_dir) / "metrics.jsonl").string();
}

std::string log_path(const RunConfig& config) {
  return (fs::path(config.output_dir) / "train.log").string();
}

std::string events_path(const RunConfig& config) {
  return (fs::path(config.output_dir) / "tensorboard").string();
}

ResumePlan plan_resume(const RunConfig& config, const std::string& resume) {
  ResumePlan plan;
  if (resume.empty()) {
    if (holds_run(config))
      fail_input("output_dir ", config.output_dir,
                 " holds another run; continue it with "
                 "--resume auto, or choose another output_dir");
    return plan;
  }
  if (resume != "auto") {
    plan.checkpoint = find_checkpoint(resume);
    check_same_run(config, plan.checkpoint);
    return plan;
  }
  const NewestCheckpoint newest = find_newest_whole(config.checkpoint.save);
  plan.notes = newest.skipped;
  plan.checkpoint = newest.directory;
  if (!plan.checkpoint.empty()) {
    check_same_run(config, plan.checkpoint);
    return plan;
  }
  // Killed before its first checkpoint: the same run starts again from the beginning.
  const fs::path resolved = fs::path(config.output_dir) / "resolved_config.json";
  if (!fs::exists(resolved)) return plan;
  const RunConfig saved = read_resolved(resolved.string());
  if (trajectory_hash(saved) != trajectory_hash(config))
    fail_input("output_dir ", config.output_dir, " holds another run without a checkpoint (",
               differences(saved, config), "); use another output_dir");
  plan.notes.push_back("no checkpoint yet: the run starts from the beginning");
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
