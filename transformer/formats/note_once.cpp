#include "transformer/formats/note_once.h"

#include <filesystem>
#include <mutex>
#include <set>

#include "engine/core/error.h"
#include "engine/observe/log.h"

namespace trireme {

void note_once(const std::string& file, const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> noted;
  const std::lock_guard lock(mutex);
  std::error_code ignored;
  const std::string place = std::filesystem::weakly_canonical(file, ignored).string();
  if (noted.insert(concat(place, line.substr(file.size()))).second) log_info(line);
}

}  // namespace trireme
