#include "tests/support/golden_models.h"

#include <algorithm>
#include <filesystem>

#include "engine/core/error.h"
#include "tests/support/source_folder.h"

namespace trireme::test {

std::string golden_folder(const std::string& name) {
  return concat(source_folder(), "/tests/golden/hf/", name);
}

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder("")))
    names.push_back(entry.path().filename().string());
  TRIREME_CHECK(!names.empty(), golden_folder(""), " is empty");
  std::ranges::sort(names);
  return names;
}

}  // namespace trireme::test
