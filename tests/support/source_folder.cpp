#include "tests/support/source_folder.h"

namespace trireme::test {

const std::string& source_folder() {
  static const std::string folder = TRIREME_SOURCE_DIR;
  return folder;
}

}  // namespace trireme::test
