#include "engine/io/text_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/input_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

bool drop_suffix(std::string& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.resize(name.size() - suffix.size());
  return true;
}

TextFile classify(const fs::path& path) {
  TextFile file;
  file.path = path.string();
  std::error_code error;
  file.bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error) fail_input("cannot read ", file.path, ": ", error.message());
  std::string name = path.filename().string();
  if (drop_suffix(name, ".gz")) file.compression = TextFile::Compression::kGzip;
  if (drop_suffix(name, ".zst")) file.compression = TextFile::Compression::kZstd;
  file.may_be_array = name.ends_with(".json");
  file.json_lines = name.ends_with(".jsonl") || file.may_be_array;
  return file;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<TextFile> list_folder(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end; it.increment(error)) {
    if (error) break;
    if (it->is_directory(error) && is_hidden(it->path())) it.disable_recursion_pending();
    if (it->is_regular_file(error) && !is_hidden(it->path())) paths.push_back(it->path());
  }
  if (error) fail_input("cannot read folder ", folder.string(), ": ", error.message());
  std::sort(paths.begin(), paths.end());
  std::vector<TextFile> files;
  for (const fs::path& path : paths) {
    TextFile file = classify(path);
    if (file.bytes > 0) files.push_back(std::move(file));
  }
  if (files.empty()) fail_input("folder ", folder.string(), " holds no text: give another one");
  return files;
}

}  // namespace

std::vector<TextFile> list_text_files(const std::vector<std::string>& paths) {
  std::vector<TextFile> files;
  std::set<fs::path> seen;
  std::string empty;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) fail_input("no such file or folder: ", path, "; check the path");
    std::vector<TextFile> found;
    if (fs::is_directory(status)) {
      found = list_folder(path);
    } else if (fs::is_regular_file(status)) {
      found = {classify(path)};
      if (found[0].bytes == 0) {
        empty += concat(empty.empty() ? "" : ", ", path);
        continue;
      }
    } else {
      require_regular_file(path);
      fail_input("cannot read ", path, ": it is neither a file nor a folder");
    }
    for (TextFile& file : found) {
      if (seen.insert(fs::canonical(file.path)).second) files.push_back(std::move(file));
    }
  }
  if (files.empty() && !empty.empty()) fail_input("no text to read: all files are empty: ", empty);
  if (files.empty()) fail_input("no input given: name a text file or a folder of them");
  return files;
}

}  // namespace trireme
