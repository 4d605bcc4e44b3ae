#include "transformer/formats/unfinished_copy.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/log.h"
#include "transformer/formats/file_tensor.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Removes files that a copy writes, but no other files in the directory.
void remove_written(const std::string& directory) {
  std::vector<std::string> written;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".safetensors") != std::string::npos || name.starts_with("step-") ||
        name == "latest" || name == "config.json" || name == "generation_config.json")
      written.push_back(entry.path().string());
  }
  for (const std::string& path : written) remove_tree(path);
}

// Returns whether the directory is empty, apart from a marker whose write was interrupted.
bool is_empty(const std::string& directory, const std::string& marker) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path() != marker + ".tmp") return false;
  return true;
}

std::string word(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string()
             ? json[key].get<std::string>()
             : std::string();
}

}  // namespace

UnfinishedCopy::UnfinishedCopy(const ModelSource& source, std::string directory, const char* marker,
                               const std::string& asked)
    : directory_(std::move(directory)), marker_(concat(directory_, "/", marker)) {
  const Json wanted = {{"source", fs::absolute(source.path()).string()},
                       {"asked", asked},
                       {"state", fingerprint(source)}};
  identity_ = wanted.dump();
  std::error_code error;
  if (fs::exists(marker_, error)) {
    const Json found = parse_json_file(marker_);
    if (found == wanted) return;
    if (word(found, "source") != word(wanted, "source") || word(found, "asked") != asked)
      fail_input(directory_, " holds the unfinished copy of ", word(found, "source"), " (",
                 word(found, "asked"), "), not of ", word(wanted, "source"), " (", asked,
                 "); remove it or give another directory");
    log_warning(directory_, ": starting over: ", source.path(),
                " has changed since the copy was interrupted");
    remove_written(directory_);
  } else if (fs::exists(directory_, error) && !is_empty(directory_, marker_)) {
    fail_input(directory_, " is not empty; remove it or give another directory");
  }
  make_directories(directory_);
  write_file_atomically(marker_, wanted.dump(2) + "\n");
}

void UnfinishedCopy::finish() { remove_tree(marker_); }

}  // namespace trireme
