// main() of the C++ tests: GoogleTest's, with the option
//  --isa=avx2|portable   limits kernels and the GEMM library to a lower instruction set
// If that set is not below the machine's best, exits with 77 (ctest: skipped): the run without a
// limit covers it, or the machine lacks it.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "engine/core/cpu.h"
#include "engine/core/error.h"
#include "engine/ops/backend/instruction_set.h"
#include "engine/ops/gemm/gemm.h"

namespace {

constexpr int kSkipped = 77;

// Removes --isa=NAME from the arguments. "": absent.
std::string take_isa(int& argc, char** argv) {
  const std::string flag = "--isa=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with(flag)) continue;
    for (int j = i; j + 1 < argc; ++j) argv[j] = argv[j + 1];
    --argc;
    return argument.substr(flag.size());
  }
  return "";
}

// Limits the process to `name`. false: that set is not below the machine's best, or not built.
bool limit(const std::string& name) {
  using namespace trireme;
  const Isa isa = parse_isa(name);
  if (!has_isa(isa) && isa > best_isa()) {
    std::printf("skipped: %s is not in this build (%s)\n", name.c_str(), built_isas().c_str());
    return false;
  }
  if (isa > best_isa()) {
    limit_instruction_set(isa);
    return true;
  }
  std::printf("skipped: %s is not below this machine's best instruction set, %s\n", name.c_str(),
              isa_name(best_isa()));
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    if (const std::string name = take_isa(argc, argv); !name.empty() && !limit(name))
      return kSkipped;
  } catch (const trireme::Error& e) {
    std::fprintf(stderr, "--isa: %s\n", e.what());
    return static_cast<int>(e.code());
  }
  std::printf("instruction set: %s, %s\n", trireme::isa_name(trireme::best_isa()),
              trireme::gemm_library_version().c_str());
  return RUN_ALL_TESTS();
}
