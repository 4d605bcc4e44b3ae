#include "transformer/checkpoint/find_checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "transformer/formats/load_config.h"
#include "transformer/formats/model_source.h"

namespace trireme {

namespace fs = std::filesystem;

std::string checkpoints_directory(const std::string& path) {
  const fs::path folder = path;
  if (fs::exists(folder / kManifestName) || fs::exists(folder / "latest")) return path;
  if (fs::is_directory(folder / "checkpoints")) return (folder / "checkpoints").string();
  const fs::path resolved = folder / "resolved_config.json";
  const Json json =
      fs::exists(resolved) ? parse_json_text<Json>(read_small_file(resolved)) : Json();
  if (!json.is_object() || !json.contains("checkpoint")) return path;
  const Json& checkpoint = json["checkpoint"];
  if (!checkpoint.is_object() || !checkpoint.contains("save") || !checkpoint["save"].is_string())
    return path;
  const std::string save = checkpoint["save"];
  return fs::is_directory(save) ? save : path;
}

std::string skipped_steps_problem(const CheckpointReader& reader) {
  const nlohmann::ordered_json state = reader.state();
  const bool known = state.is_object() && state.contains(kConsecutiveSkips) &&
                     state[kConsecutiveSkips].is_number_integer();
  const int64_t skips = known ? state[kConsecutiveSkips].get<int64_t>() : 0;
  if (skips <= 0) return "";
  return concat(reader.directory(), " was saved after ", skips,
                skips == 1 ? " step that was" : " steps in a row that were",
                " not finite; using an older one");
}

NewestCheckpoint find_newest_good(const std::string& root, bool thorough) {
  NewestCheckpoint newest = find_newest_whole(root, thorough, skipped_steps_problem);
  return newest.directory.empty() ? find_newest_whole(root, thorough) : newest;
}

NewestCheckpoint find_checkpoint(const std::string& path) {
  if (!fs::exists(path))
    fail_input(path, ": no such run, checkpoint or model directory", model_advice(path));
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
  NewestCheckpoint newest = find_newest_good(root);
  std::string damaged;
  for (const std::string& one : newest.skipped) damaged += "\n  " + one;
  if (!damaged.empty() && newest.directory.empty())
    fail_input(path, " holds no whole checkpoint:", damaged);
  if (newest.directory.empty())
    fail_input(path,
               " holds no whole checkpoint; give a run directory, its checkpoints/ folder or "
               "one step-NNNNNNNN folder",
               model_advice(path));
  return newest;
}

std::string newest_checkpoint_at(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || !fs::is_directory(path, ignored) || is_model_source(path)) return "";
  std::string place = checkpoints_directory(path);
  if (fs::exists(fs::path(place) / kManifestName, ignored)) return place;
  return find_newest_good(place, false).directory;
}

std::string find_model(const std::string& path) {
  return is_model_source(path) ? path : find_checkpoint(checkpoints_directory(path)).directory;
}

}  // namespace trireme
