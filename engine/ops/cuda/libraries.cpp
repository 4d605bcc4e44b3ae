#include "engine/device/cuda/libraries.h"

namespace trireme::cuda {

void open_libraries(Context&) {}

}  // namespace trireme::cuda
