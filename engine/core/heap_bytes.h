// Heap bytes of containers, with the header and rounding of glibc's malloc, for budgets on the
// memory that a process uses rather than on what it requested.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace trireme {

// Bytes of the heap block for a request of `asked` bytes: with 8 bytes of header, rounded up to a
// multiple of 16, at least 32. 0 for an empty request. Large requests, which malloc maps in whole
// pages, are counted like any other.
constexpr int64_t heap_block_bytes(size_t asked) {
  return asked == 0 ? 0 : static_cast<int64_t>(std::max<size_t>((asked + 8 + 15) / 16 * 16, 32));
}

// Heap bytes of the vector's capacity. Heap memory that the elements own is not counted.
template <class T>
int64_t heap_bytes(const std::vector<T>& v) {
  return heap_block_bytes(v.capacity() * sizeof(T));
}

// Heap bytes of the nodes (element, link and possibly a stored hash) and the bucket array of a
// std::unordered_map or set. Heap memory that the elements own is not counted.
template <class Map>
int64_t hash_map_bytes(const Map& map) {
  constexpr int64_t kNode = heap_block_bytes(sizeof(typename Map::value_type) + 2 * sizeof(void*));
  return std::ssize(map) * kNode + heap_block_bytes(map.bucket_count() * sizeof(void*));
}

// Empties a container and frees its memory, which `container = {}` does not: that assigns an empty
// initializer list and keeps the capacity.
template <class Container>
void release_memory(Container& container) {
  Container().swap(container);
}

}  // namespace trireme
