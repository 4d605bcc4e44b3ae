// Part of a logical tensor: a box of it (tensor parallelism) and, inside the box flattened
// row-major, a range of elements (ZeRO). Any two such parts intersect in contiguous runs, which
// suffices to load a checkpoint into another layout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme {

struct TensorBox {
  std::vector<int64_t> start, extent;  // per dimension of the logical tensor
  int64_t numel() const;
  std::string str() const;  // "[0:4, 16:32]"
  bool operator==(const TensorBox&) const = default;
};
TensorBox whole_box(const std::vector<int64_t>& shape);
// Problem with a box: another rank than the shape, a negative start, an extent below 1, a range
// beyond the shape, a size of the shape below 1 or an overflow of their product. "" if valid.
std::string check_box(const TensorBox& box, const std::vector<int64_t>& shape);

// Elements [begin, end) of the flattened box.
struct TensorPart {
  TensorBox box;
  int64_t begin = 0, end = 0;
};

// Run of elements that is contiguous in the logical tensor and in both parts.
struct CommonRun {
  int64_t length = 0;
  int64_t first_offset = 0;   // elements from the start of the first part's range
  int64_t second_offset = 0;  // elements from the start of the second part's range
};
// Calls f for every maximal run common to both parts of a logical tensor of `shape`, in row-major
// order. Boxes must have passed check_box(). Cost: O(n log n) for n contiguous rows of both parts.
void for_each_common_run(const std::vector<int64_t>& shape, const TensorPart& first,
                         const TensorPart& second, const std::function<void(const CommonRun&)>& f);

// Number of elements in both parts.
int64_t common_elements(const std::vector<int64_t>& shape, const TensorPart& first,
                        const TensorPart& second);

}  // namespace trireme
