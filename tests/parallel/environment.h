// Environment variables of one test, restored at its end.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>

#include "parallel/comm/launcher_environment.h"

namespace trireme::test {

// Sets launcher variables for one test and clears all others of the list.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& wanted) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_RANK",
                             "PMI_SIZE",
                             "PMI_RANK",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_PROCID",
                             "WORLD_SIZE",
                             "RANK",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TRIREME_CONSOLE",
                             "SLURM_JOB_NUM_NODES",
                             "LOCAL_RANK",
                             "PMIX_RANK",
                             "PMIX_NAMESPACE",
                             "OMPI_MCA_btl",
                             "TRIREME_MPIRUN",
                             kLeaderVariable,
                             kMachineRanksVariable,
                             kCommSecretVariable,
                             kCommSecretFileVariable,
                             kListenAddressVariable,
                             kListenerVariable}) {
      const char* old = std::getenv(name);
      before_[name] = old == nullptr ? std::nullopt : std::optional<std::string>(old);
      const auto it = wanted.find(name);
      if (it == wanted.end())
        unsetenv(name);
      else
        setenv(name, it->second.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_)
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace trireme::test
