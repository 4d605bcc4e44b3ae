#include "engine/core/parallel_for.h"
#include "engine/ops/backend/philox.cpu.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/compression/sparse_code.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kPieceElements = 1 << 13;  // worth a thread

// body(place, row, block)
template <class Body>
TRIREME_INLINE void for_blocks(const SparseShape& s, int threads, Body&& body) {
  parallel_pieces(threads, s.rows * s.blocks, kPieceElements / s.block + 1,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t row = i / s.blocks, block = i - row * s.blocks;
                      body(sparse_block_range(s, row, block), row, block);
                    }
                  });
}

// Writes the positions of the `kept` largest of `width` keys, in ascending order; of equal keys the
// first. Finds the kept-th largest key byte by byte, highest first: a histogram of that byte among
// the keys that agree in the bytes before it.
template <class Key>
TRIREME_INLINE void select_keys(uint16_t* index, const Key* key, int64_t width, int64_t kept) {
  constexpr int kBits = 8 * sizeof(Key);
  Key threshold = 0;
  int64_t wanted = kept;  // keys that agree with `threshold` in the bytes found
  for (int shift = kBits - 8; shift >= 0; shift -= 8) {
    int32_t count[256] = {};
    const Key mask = shift == kBits - 8 ? 0 : static_cast<Key>(~Key{0} << (shift + 8));
    for (int64_t i = 0; i < width; ++i)
      if ((key[i] & mask) == threshold) ++count[key[i] >> shift & 255];
    int byte = 255;
    for (; count[byte] < wanted; --byte) wanted -= count[byte];
    threshold |= static_cast<Key>(byte) << shift;
  }
  for (int64_t i = 0; i < width; ++i)
    if (key[i] > threshold || (key[i] == threshold && wanted-- > 0))
      *index++ = static_cast<uint16_t>(i);
}

template <class T>
TRIREME_INLINE Vec<compute_t<T>> value_at(const T* x, const compute_t<T>* residual, int64_t i,
                                          auto lanes) {
  const auto v = load_lanes(x + i, lanes);
  return residual == nullptr ? v : v + load_lanes(residual + i, lanes);
}

}  // namespace

template <class T>
void select_largest(const SelectLargest<T>& a, int threads) {
  using C = compute_t<T>;
  using Key = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;
  for_blocks(a.shape, threads, [&a](const SparseBlockRange& at, int64_t, int64_t) {
    C magnitude[kMaxSparseWidth + kLanes<C>];
    for_vectors<C>(at.width, [&](int64_t i, auto lanes) {
      store(magnitude + i, value_at(a.x, a.residual, at.element + i, lanes));
    });
    Key key[kMaxSparseWidth];
    __builtin_memcpy(key, magnitude, static_cast<size_t>(at.width) * sizeof(Key));
    for (int64_t i = 0; i < at.width; ++i) key[i] &= ~Key{0} >> 1;  // without the sign
    select_keys(a.index + at.selected, key, at.width, at.kept);
  });
}

template <class T>
void select_random(const T& a, int threads) {
  for_blocks(a.shape, threads, [&a](const SparseBlockRange& at, int64_t row, int64_t block) {
    uint32_t words[kMaxSparseWidth + kPhiloxBatch + 4];
    const int64_t first = (a.first + row * a.stride + block) * a.shape.block;
    // Whole batches that begin at a multiple of a Philox block; `first` need not be one.
    const int64_t begin = first / 4 * 4;
    for (int64_t i = 0; i < first - begin + at.width; i += kPhiloxBatch)
      philox_batch(a.key, static_cast<uint64_t>((begin + i) / 4), words + i);
    const uint32_t* const key = words + (first - begin);
    select_keys(a.index + at.selected, key, at.width, at.kept);
  });
}

template <class T>
void gather_selected(const GatherSelected<T>& a, int threads) {
  using C = compute_t<T>;
  for_blocks(a.shape, threads, [&a](const SparseBlockRange& at, int64_t, int64_t) {
    const uint16_t* const index = a.index + at.selected;
    C* const values = a.values + at.selected;
    if (a.residual == nullptr) {
      for (int64_t k = 0; k < at.kept; ++k) values[k] = static_cast<C>(a.x[at.element + index[k]]);
      return;
    }
    C* const residual = a.residual + at.element;
    for_vectors<C>(at.width, [&](int64_t i, auto lanes) {
      store_lanes(residual + i, lanes, value_at(a.x + at.element, residual, i, lanes));
    });
    for (int64_t k = 0; k < at.kept; ++k) {
      values[k] = residual[index[k]];
      residual[index[k]] = 0;
    }
  });
}

template <class T>
void scatter_selected(const ScatterSelected<T>& a, int threads) {
  using C = compute_t<T>;
  for_blocks(a.shape, threads, [&a](const SparseBlockRange& at, int64_t, int64_t) {
    T* const y = a.y + at.element;
    if (!a.add)
      for (int64_t i = 0; i < at.width; ++i) y[i] = T{};
    for (int64_t k = 0; k < at.kept; ++k) {
      const int64_t i = a.index[at.selected + k];
      if (i >= at.width) continue;
      const C value = a.values[at.selected + k];
      y[i] = convert_float<T>(a.add ? static_cast<C>(y[i]) + value : value);
    }
  });
}

#define TRIREME_INSTANTIATE(T)                                     \
  template void select_largest<T>(const SelectLargest<T>&, int);   \
  template void gather_selected<T>(const GatherSelected<T>&, int); \
  template void scatter_selected<T>(const ScatterSelected<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)
template void select_random<SelectRandom>(const SelectRandom&, int);

}  // namespace trireme::cpu::TRIREME_ISA
