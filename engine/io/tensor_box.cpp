#include "engine/io/tensor_box.h"

#include <algorithm>

#include "engine/core/tensor.h"

namespace trireme {
namespace {

// Range of a part as stretches that are contiguous in the logical tensor, in ascending order.
// Trailing dimensions that the box spans entirely form one row with the next dimension.
class Stretches {
 public:
  Stretches(const std::vector<int64_t>& shape, const TensorPart& part) : part_(part) {
    const size_t rank = shape.size();
    strides_.resize(rank);
    int64_t stride = 1;
    for (size_t d = rank; d-- > 0;) {
      strides_[d] = stride;
      stride *= shape[d];
    }
    outer_ = rank;
    while (outer_ > 0) {
      --outer_;
      row_ *= part.box.extent[outer_];
      if (part.box.extent[outer_] != shape[outer_]) break;
    }
    if (part.begin < part.end) seek_row(part.begin / row_);
    done_ = part.begin >= part.end;
  }

  bool done() const { return done_; }
  int64_t begin() const { return begin_; }  // in the flattened logical tensor
  int64_t end() const { return end_; }
  int64_t offset() const { return offset_; }  // of begin() from the start of the part's range

  // Moves to the stretch that ends after `position`, at least to the next one.
  void advance_beyond(int64_t position) {
    int64_t low = index_ + 1, high = (part_.end - 1) / row_ + 1;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (row_start(middle) + row_ > position) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    done_ = low > (part_.end - 1) / row_;
    if (!done_) seek_row(low);
  }

 private:
  int64_t row_start(int64_t index) const {
    int64_t position = 0, rest = index;
    for (size_t d = outer_; d-- > 0;) {
      position += (part_.box.start[d] + rest % part_.box.extent[d]) * strides_[d];
      rest /= part_.box.extent[d];
    }
    if (outer_ < strides_.size()) position += part_.box.start[outer_] * strides_[outer_];
    return position;
  }

  void seek_row(int64_t index) {
    index_ = index;
    const int64_t start = row_start(index), flat = index * row_;
    const int64_t from = std::max(part_.begin, flat), to = std::min(part_.end, flat + row_);
    begin_ = start + (from - flat);
    end_ = start + (to - flat);
    offset_ = from - part_.begin;
  }

  const TensorPart& part_;
  std::vector<int64_t> strides_;
  size_t outer_ = 0;  // the dimension that rows are split along; earlier ones are iterated over
  int64_t row_ = 1;
  int64_t index_ = 0, begin_ = 0, end_ = 0, offset_ = 0;
  bool done_ = false;
};

}  // namespace

int64_t TensorBox::numel() const {
  int64_t n = 1;
  for (const int64_t e : extent) n = checked_mul(n, e);
  return n;
}

std::string TensorBox::str() const {
  std::string out = "[";
  for (size_t d = 0; d < start.size(); ++d) {
    out += concat(d == 0 ? "" : ", ", start[d], ":", start[d] + extent[d]);
  }
  return out + "]";
}

TensorBox whole_box(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

std::string check_box(const TensorBox& box, const std::vector<int64_t>& shape) {
  if (box.start.size() != shape.size() || box.extent.size() != shape.size()) {
    return concat("a box of ", box.start.size(), " starts and ", box.extent.size(),
                  " extents for a tensor of ", shape.size(), " dimensions");
  }
  int64_t n = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 1 || __builtin_mul_overflow(n, shape[d], &n)) {
      return concat("a shape with dimension ", shape[d]);
    }
    const bool inside = box.start[d] >= 0 && box.extent[d] >= 1 && box.start[d] < shape[d] &&
                        box.extent[d] <= shape[d] - box.start[d];
    if (!inside) {
      return concat("start ", box.start[d], " and extent ", box.extent[d],
                    " are outside dimension ", d, " of size ", shape[d]);
    }
  }
  return "";
}

void for_each_common_run(const std::vector<int64_t>& shape, const TensorPart& first,
                         const TensorPart& second, const std::function<void(const CommonRun&)>& f) {
  Stretches a(shape, first), b(shape, second);
  while (!a.done() && !b.done()) {
    const int64_t begin = std::max(a.begin(), b.begin()), end = std::min(a.end(), b.end());
    if (begin < end) {
      f({end - begin, a.offset() + begin - a.begin(), b.offset() + begin - b.begin()});
    }
    if (a.end() < b.end()) {
      a.advance_beyond(b.begin());
    } else {
      b.advance_beyond(a.begin());
    }
  }
}

int64_t common_elements(const std::vector<int64_t>& shape, const TensorPart& first,
                        const TensorPart& second) {
  int64_t n = 0;
  for_each_common_run(shape, first, second, [&](const CommonRun& run) { n += run.length; });
  return n;
}

}  // namespace trireme
