#include "tests/support/source_folder.h"

#include <filesystem>

namespace trireme::test {

const std::string& source_folder() {
  static const std::string folder =
      std::filesystem::is_directory(TRIREME_SOURCE_DIR) ? TRIREME_SOURCE_DIR : ".";
  return folder;
}

}  // namespace trireme::test
