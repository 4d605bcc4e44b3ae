// Heap memory that containers hold, as glibc's allocator gives it: for budgets that are to bound
// what a process holds rather than what was asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace trireme {

// Bytes of a block for `asked` bytes: 8 bytes of its own, a multiple of 16, at least 32.
constexpr int64_t heap_block_bytes(size_t asked) {
  return asked == 0 ? 0 : static_cast<int64_t>(std::max<size_t>((asked + 8 + 15) / 16 * 16, 32));
}

// Without what its elements hold themselves.
template <class T>
int64_t heap_bytes(const std::vector<T>& v) {
  return heap_block_bytes(v.capacity() * sizeof(T));
}

// Nodes (a link and perhaps the hash beside the element) and buckets.
template <class Map>
int64_t hash_map_bytes(const Map& map) {
  constexpr int64_t kNode = heap_block_bytes(sizeof(typename Map::value_type) + 2 * sizeof(void*));
  return std::ssize(map) * kNode + heap_block_bytes(map.bucket_count() * sizeof(void*));
}

// Empties a container and gives its memory back, which `container = {}` does not: that is the
// assignment of an empty list of elements.
template <class Container>
void release_memory(Container& container) {
  Container().swap(container);
}

}  // namespace trireme
