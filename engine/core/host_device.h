// Marker of functions that both kinds of kernels call: the CPU's, and CUDA's as compiled by nvcc.
#pragma once

#ifdef __CUDACC__
#define TRIREME_HOST_DEVICE __host__ __device__
#else
#define TRIREME_HOST_DEVICE
#endif
