// The emulator must find what it promises to find.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include <cuda_runtime.h>

namespace {

__global__ void scale(const float* in, float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = 2 * in[i];
}

__global__ void block_sum(const float* in, float* out) {
  __shared__ float partial[8];
  float v = in[blockIdx.x * 256 + threadIdx.x];
  for (int m = 16; m; m /= 2) v += __shfl_xor_sync(0xffffffffu, v, m);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
  for (const float p : partial) sum += p;
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

TEST(Emulator, RunsKernelsWithBarriersAndShuffles) {
  constexpr int kBlocks = 3, kN = 256 * kBlocks;
  std::vector<float> x(kN), got(kBlocks);
  for (int i = 0; i < kN; ++i) x[i] = static_cast<float>(i % 7);
  float *in = nullptr, *twice = nullptr, *out = nullptr;
  ASSERT_EQ(cudaMalloc(&in, kN * 4), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&twice, kN * 4), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&out, kBlocks * 4), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(in, x.data(), kN * 4, cudaMemcpyHostToDevice), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  emulator::launch(stream, "scale", kBlocks, 256, 0, [=] { scale(in, twice, kN); });
  emulator::launch(stream, "block_sum", kBlocks, 256, 0, [=] { block_sum(twice, out); });
  ASSERT_EQ(cudaMemcpy(got.data(), out, kBlocks * 4, cudaMemcpyDeviceToHost), cudaSuccess);
  for (int b = 0; b < kBlocks; ++b) {
    float want = 0;
    for (int i = 0; i < 256; ++i) want += 2 * x[b * 256 + i];
    EXPECT_EQ(got[b], want);
  }
  cudaFree(in);
  cudaFree(twice);
  cudaFree(out);
  cudaStreamDestroy(stream);
  emulator::reset();
}

}  // namespace
