#include "engine/device/cuda/libraries.h"

#include "engine/ops/cuda/blas_lt.h"
#include "engine/ops/cuda/cudnn_attention.h"

namespace trireme::cuda {

void open_libraries(Context& gpu) {
  gpu.blas = std::make_shared<BlasLt>(gpu.info);
  open_attention(gpu);
}

}  // namespace trireme::cuda
