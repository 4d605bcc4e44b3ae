#include "parallel/comm/device/device_environment.h"

#include <cstdlib>

namespace trireme {

void set_device_environment(int ranks) {
  constexpr int kKeepTheUsers = 0;
  if (ranks > 1) setenv("CUDA_MODULE_LOADING", "EAGER", kKeepTheUsers);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kKeepTheUsers);
}

}  // namespace trireme
