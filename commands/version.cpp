#include "commands/version.h"

#include "commands/build_info.h"
#include "engine/core/cpu.h"
#include "engine/core/error.h"

namespace trireme {

std::string version_text() {
  return concat("trireme ", build::kVersion, " (commit ", build::kCommit, ")\n",  //
                "compiler:   ", build::kCompiler, ", C++20, ", build::kBuildType, "\n",
                "backends:   ", build::kBackends, "\n", "libraries:  ", build::kLibraries, "\n",
                "processor:  ", cpu_model_name(), ", ", available_cores(), " cores available\n",
                "features:   ", cpu_features(), "\n", "kernels:    ", isa_name(active_isa()));
}

}  // namespace trireme
