#include "commands/version.h"

#include "commands/build_info.h"
#include "engine/core/cpu.h"
#include "engine/core/error.h"
#include "engine/device/context.h"

namespace trireme {

namespace {

// Compute devices available to this process.
std::string devices_text() {
  const cuda::DeviceStatus status = cuda::device_status();
  const std::string versions = status.runtime.empty() ? "" : concat(" ", status.runtime);
  if (status.devices > 0)
    return concat("cpu; cuda", versions, ": ", status.devices, " visible (driver for ",
                  status.driver, ")");
  return concat("cpu; no cuda: ", status.reason,
                status.runtime.empty() ? "" : concat(" (built with CUDA", versions, ")"));
}

}  // namespace

std::string version_number() { return build::kVersion; }

std::string version_text() {
  return concat("trireme ", build::kVersion, " (commit ", build::kCommit, ")\n",  //
                "compiler:   ", build::kCompiler, ", C++20, ", build::kBuildType, "\n",
                "devices:    ", devices_text(), "\n", "libraries:  ", build::kLibraries, "\n",
                "processor:  ", cpu_model_name(), ", ", available_cores(), " cores available\n",
                "features:   ", cpu_features(), "\n", "kernels:    ", isa_name(active_isa()),
                " (built: ", built_isas(), ")");
}

}  // namespace trireme
