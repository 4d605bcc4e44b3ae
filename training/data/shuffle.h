// Subset of numpy.random.RandomState, bit for bit, on which Megatron's data order depends: MT19937
// seeded with one 32-bit integer, and shuffle() (Fisher-Yates from the last element down, each
// index drawn by masked rejection).
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace trireme {

class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint32_t seed) : generator_(seed) {}

  // Random integer, uniform in [0, largest].
  uint64_t interval(uint64_t largest) {
    if (largest == 0) return 0;
    uint64_t mask = largest;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    for (;;) {
      const uint64_t value = mask & (largest <= 0xffffffffu ? word() : two_words());
      if (value <= largest) return value;
    }
  }

  template <class T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[interval(i)]);
  }

 private:
  uint64_t word() { return generator_(); }
  uint64_t two_words() {
    const uint64_t high = word();
    return high << 32 | word();
  }
  std::mt19937 generator_;
};

}  // namespace trireme
