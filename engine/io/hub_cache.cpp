#include "engine/io/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMain = "main";
constexpr int64_t kMaxReferenceBytes = 4096;

std::string hub_variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT: nothing here changes the environment
  return value == nullptr ? "" : value;
}

// Value of a path variable; a leading "~" is the user's home folder.
fs::path folder_variable(const char* name) {
  const std::string value = hub_variable(name);
  if (value == "~" || value.starts_with("~/"))
    return fs::path(hub_variable("HOME")) / value.substr(std::min<size_t>(2, value.size()));
  return value;
}

// Whether a name is one part of a path that does not lead out of its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\ \t\r\n\0", 7)) == std::string::npos;
}

std::vector<std::string> snapshots_in(const fs::path& model) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (fs::directory_iterator at(model / "snapshots", ignored), end; !ignored && at != end;
       at.increment(ignored))
    if (at->is_directory(ignored)) found.push_back(at->path().filename().string());
  std::ranges::sort(found);
  return found;
}

// Commit of a branch or tag, whose name may have slashes; "" if there is no such file.
std::string commit_of(const fs::path& model, const std::string& revision) {
  for (const fs::path& part : fs::path(revision))
    if (!is_plain_name(part.string())) return "";
  const fs::path file = model / "refs" / revision;
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return "";
  std::string commit = read_small_file(file.string(), kMaxReferenceBytes);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r')) commit.pop_back();
  return is_plain_name(commit) ? commit : "";
}

std::string snapshot_of(const fs::path& model, const std::string& revision) {
  const std::vector<std::string> snapshots = snapshots_in(model);
  const std::string commit = commit_of(model, revision.empty() ? kMain : revision);
  for (const std::string& name : snapshots)
    if (name == commit || name == revision) return (model / "snapshots" / name).string();
  if (revision.empty() && commit.empty() && snapshots.size() == 1)
    return (model / "snapshots" / snapshots[0]).string();
  std::string known;
  for (const std::string& name : snapshots) known += (known.empty() ? "" : ", ") + name;
  fail_input(model.string(), ": the hub's cache has no snapshot of ",
             revision.empty() ? "its main revision" : concat("revision \"", revision, "\""),
             known.empty() ? "; download it again"
                           : concat("; it has ", known,
                                    ": give one of them as ORG/NAME@COMMIT, or "
                                    "download the revision"));
}

// "" if the word is not a model name.
std::string cached_folder(const std::string& name) {
  const size_t slash = name.find('/');
  const std::string first = name.substr(0, slash);
  if (!is_plain_name(first) || first.front() == '~') return "";
  if (slash == std::string::npos) return "models--" + first;
  const std::string second = name.substr(slash + 1);
  return is_plain_name(second) ? concat("models--", first, "--", second) : "";
}

}  // namespace

std::string hub_cache() {
  if (const fs::path hub = folder_variable("HF_HUB_CACHE"); !hub.empty()) return hub.string();
  if (const fs::path home = folder_variable("HF_HOME"); !home.empty())
    return (home / "hub").string();
  fs::path cache = folder_variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = fs::path(hub_variable("HOME")) / ".cache";
  return (cache / "huggingface" / "hub").string();
}

std::string local_model(const std::string& word) {
  std::error_code ignored;
  fs::path path = fs::path(word).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // trailing slash
  if (fs::exists(path, ignored)) {
    const bool cached = path.filename().string().starts_with("models--") &&
                        fs::is_directory(path / "snapshots", ignored);
    return cached ? snapshot_of(path, "") : word;
  }
  const size_t at = std::min(word.find('@'), word.size());
  const std::string folder = cached_folder(word.substr(0, at));
  if (folder.empty()) return word;
  const fs::path model = fs::path(hub_cache()) / folder;
  if (!fs::is_directory(model, ignored)) return word;
  return snapshot_of(model, at < word.size() ? word.substr(at + 1) : "");
}

}  // namespace trireme
