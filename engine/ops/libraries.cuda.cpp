#include "engine/device/cuda/libraries.h"

#include "engine/ops/attention/cudnn_attention.cuda.h"
#include "engine/ops/gemm/blas_lt.cuda.h"

namespace trireme::cuda {

void open_libraries(Context& gpu) {
  gpu.blas = std::make_shared<BlasLt>(gpu.info);
  open_attention(gpu);
}

}  // namespace trireme::cuda
