#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/compression/sparse_code.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;  // one thread for each value of a byte

__device__ uint32_t magnitude_bits(float x) {
  return static_cast<uint32_t>(__float_as_int(x)) & 0x7fffffffu;
}
__device__ uint64_t magnitude_bits(double x) {
  return static_cast<uint64_t>(__double_as_longlong(x)) & 0x7fffffffffffffffu;
}
__device__ float total(float a, float b) { return __fadd_rn(a, b); }
__device__ double total(double a, double b) { return __dadd_rn(a, b); }

template <class T>
__device__ compute_t<T> value_at(const T* x, const compute_t<T>* residual, int64_t i) {
  const compute_t<T> v = to_compute(x[i]);
  return residual == nullptr ? v : total(v, residual[i]);
}

struct OwnBlock {
  cpu::SparseBlockRange at;
  int64_t row, number;
};
// Block of the code that this thread block computes.
__device__ OwnBlock own_block(const cpu::SparseShape& s) {
  const auto item = static_cast<int64_t>(blockIdx.x);
  const int64_t row = quotient(item, s.blocks), number = item - row * s.blocks;
  return {cpu::sparse_block_range(s, row, number), row, number};
}

// Number of threads before this one with `flag`, and of all in *sum. All threads must call it.
// shared: kWarps elements.
__device__ int rank_of(bool flag, int* shared, int* sum) {
  const int lane = lane_of_warp(), warp = static_cast<int>(threadIdx.x) / kWarp;
  const unsigned votes = __ballot_sync(0xffffffffu, flag ? 1 : 0);
  __syncthreads();  // until an earlier call's values have been read
  if (lane == 0) shared[warp] = __popc(votes);
  __syncthreads();
  int rank = __popc(votes & ((1u << lane) - 1));
  *sum = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) rank += shared[w];
    *sum += shared[w];
  }
  return rank;
}

// As select_keys of the CPU kernels, with the keys of `work`.
template <class Work>
__global__ void __launch_bounds__(kThreads) select_kernel(Work work) {
  begin_kernel();
  using Key = typename Work::Key;
  constexpr int kBits = 8 * sizeof(Key);
  __shared__ int count[kThreads];
  __shared__ Key found;
  __shared__ int found_wanted;
  __shared__ int ranks[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const OwnBlock block = own_block(work.shape());
  const int width = static_cast<int>(block.at.width);
  if (thread == 0) {
    found = 0;
    found_wanted = static_cast<int>(block.at.kept);
  }
  for (int shift = kBits - 8; shift >= 0; shift -= 8) {
    count[thread] = 0;
    __syncthreads();
    const Key threshold = found;
    const int wanted = found_wanted;
    const Key mask = shift == kBits - 8 ? 0 : static_cast<Key>(~Key{0} << (shift + 8));
    for (int i = thread; i < width; i += kThreads) {
      const Key key = work.key(block, i);
      if ((key & mask) == threshold) atomicAdd(&count[static_cast<int>(key >> shift & 255)], 1);
    }
    __syncthreads();
    int above = 0;
    for (int byte = thread + 1; byte < kThreads; ++byte) above += count[byte];
    if (above < wanted && wanted <= above + count[thread]) {
      found = threshold | static_cast<Key>(thread) << shift;
      found_wanted = wanted - above;
    }
    __syncthreads();
  }
  const Key threshold = found;
  int equal_left = found_wanted;
  uint16_t* index = work.index() + block.at.selected;
  for (int first = 0; first < width; first += kThreads) {
    const int i = first + thread;
    const Key key = i < width ? work.key(block, i) : 0;
    const bool equal = i < width && key == threshold;
    int equals, selected;
    const int before = rank_of(equal, ranks, &equals);
    const bool mine = (i < width && key > threshold) || (equal && before < equal_left);
    const int place = rank_of(mine, ranks, &selected);
    if (mine) index[place] = static_cast<uint16_t>(i);
    index += selected;
    equal_left -= equals;
  }
}

template <class T>
struct LargestKeys {
  using Key = std::conditional_t<sizeof(compute_t<T>) == 8, uint64_t, uint32_t>;
  cpu::SelectLargest<T> a;
  __device__ const cpu::SparseShape& shape() const { return a.shape; }
  __device__ uint16_t* index() const { return a.index; }
  __device__ Key key(const OwnBlock& block, int i) const {
    return magnitude_bits(value_at(a.x, a.residual, block.at.element + i));
  }
};

struct RandomKeys {
  using Key = uint32_t;
  cpu::SelectRandom a;
  __device__ const cpu::SparseShape& shape() const { return a.shape; }
  __device__ uint16_t* index() const { return a.index; }
  __device__ Key key(const OwnBlock& block, int i) const {
    const int64_t number = a.first + block.row * a.stride + block.number;
    const auto word = static_cast<uint64_t>(number * a.shape.block + i);
    const PhiloxBlock four = philox(a.key, word / 4);
    // Not by index, which would put the words into local memory.
    const uint32_t even = word % 4 < 2 ? four[0] : four[2];
    const uint32_t odd = word % 4 < 2 ? four[1] : four[3];
    return word % 2 == 0 ? even : odd;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) gather_kernel(cpu::GatherSelected<T> a) {
  begin_kernel();
  using C = compute_t<T>;
  const cpu::SparseBlockRange at = own_block(a.shape).at;
  const uint16_t* const index = a.index + at.selected;
  for (int64_t k = threadIdx.x; k < at.kept; k += kThreads)
    a.values[at.selected + k] = value_at(a.x, a.residual, at.element + index[k]);
  if (a.residual == nullptr) return;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < at.width; i += kThreads)
    a.residual[at.element + i] = value_at(a.x, a.residual, at.element + i);
  __syncthreads();
  for (int64_t k = threadIdx.x; k < at.kept; k += kThreads)
    a.residual[at.element + index[k]] = C(0);
}

template <class T>
__global__ void __launch_bounds__(kThreads) scatter_kernel(cpu::ScatterSelected<T> a) {
  begin_kernel();
  const cpu::SparseBlockRange at = own_block(a.shape).at;
  T* const y = a.y + at.element;
  if (!a.add) {
    for (int64_t i = threadIdx.x; i < at.width; i += kThreads) y[i] = T{};
    __syncthreads();
  }
  for (int64_t k = threadIdx.x; k < at.kept; k += kThreads) {
    const int64_t i = a.index[at.selected + k];
    if (i >= at.width) continue;
    const compute_t<T> value = a.values[at.selected + k];
    y[i] = convert_float<T>(a.add ? total(to_compute(y[i]), value) : value);
  }
}

Grid grid_of(const cpu::SparseShape& s) {
  return {.blocks = {s.rows * s.blocks}, .threads = kThreads};
}

}  // namespace

template <class T>
void select_largest(Context& gpu, const cpu::SelectLargest<T>& a) {
  launch(gpu, "select_largest", select_kernel<LargestKeys<T>>, grid_of(a.shape), LargestKeys<T>{a});
}

void select_random(Context& gpu, const cpu::SelectRandom& a) {
  launch(gpu, "select_random", select_kernel<RandomKeys>, grid_of(a.shape), RandomKeys{a});
}

template <class T>
void gather_selected(Context& gpu, const cpu::GatherSelected<T>& a) {
  launch(gpu, "gather_selected", gather_kernel<T>, grid_of(a.shape), a);
}

template <class T>
void scatter_selected(Context& gpu, const cpu::ScatterSelected<T>& a) {
  launch(gpu, "scatter_selected", scatter_kernel<T>, grid_of(a.shape), a);
}

#define TRIREME_INSTANTIATE(T)                                               \
  template void select_largest<T>(Context&, const cpu::SelectLargest<T>&);   \
  template void gather_selected<T>(Context&, const cpu::GatherSelected<T>&); \
  template void scatter_selected<T>(Context&, const cpu::ScatterSelected<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
