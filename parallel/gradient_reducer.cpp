#include "parallel/gradient_reducer.h"

#include <algorithm>
#include <chrono>

#include "parallel/comm/collectives.h"

namespace trireme {
namespace {

// Grows `range` by `block` when the two touch; false when they do not.
bool join(ElementRange& range, const ElementRange& block) {
  if (block.end == range.begin) {
    range.begin = block.begin;
    return true;
  }
  if (block.begin == range.end) {
    range.end = block.end;
    return true;
  }
  return false;
}

void check_disjoint(std::vector<ElementRange> blocks, int64_t n) {
  std::ranges::sort(blocks, {}, &ElementRange::begin);
  int64_t end = 0;
  for (const ElementRange& b : blocks) {
    if (b.begin == b.end) continue;
    TRIREME_CHECK(b.begin >= end && b.end >= b.begin && b.end <= n, "gradient block [", b.begin,
                  ", ", b.end, ") overlaps another or leaves the ", n, " gradients");
    end = b.end;
  }
}

}  // namespace

GradientReducer::GradientReducer(Communicator& group, const Tensor& gradients,
                                 std::vector<ElementRange> blocks, const Options& options)
    : group_(group), gradients_(gradients), blocks_(std::move(blocks)), options_(options) {
  check_contiguous("gradient reducer", "gradients", gradients);
  TRIREME_CHECK(gradients.rank() == 1, "gradients of shape ", gradients.shape());
  TRIREME_CHECK(options.bucket_bytes > 0, "buckets of ", options.bucket_bytes, " bytes");
  check_disjoint(blocks_, gradients.numel());
  const int64_t most = std::max<int64_t>(1, options.bucket_bytes / dtype_size(gradients.dtype()));

  ElementRange open;
  int64_t last = 0;
  const auto close = [&] {
    const int64_t n = open.end - open.begin;
    const int pieces = narrow<int>(ceil_div(n, most));
    for (int p = 0; p < pieces; ++p) {
      const Piece piece = piece_of(n, pieces, p);
      buckets_.push_back({open.begin + piece.begin, open.begin + piece.end});
      last_block_.push_back(last);
    }
    open = {};
  };
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const ElementRange& block = blocks_[i];
    if (block.begin == block.end) continue;
    const int64_t joined = (open.end - open.begin) + (block.end - block.begin);
    const bool fits = open.begin == open.end || joined <= most;
    if (!fits) close();
    if (open.begin == open.end) {
      open = block;
    } else if (!join(open, block)) {
      close();
      open = block;
    }
    last = static_cast<int64_t>(i);
  }
  close();
  work_.reserve(buckets_.size());
}

void GradientReducer::start_bucket(size_t bucket) {
  const ElementRange& range = buckets_[bucket];
  work_.push_back(group_.all_reduce_async(gradients_.slice(0, range.begin, range.end)));
}

void GradientReducer::block_ready(int64_t index) {
  TRIREME_CHECK(index == next_block_ && index < static_cast<int64_t>(blocks_.size()),
                "gradient block ", index, " is ready where block ", next_block_, " of ",
                blocks_.size(), " was due");
  ++next_block_;
  if (!options_.overlap || group_.size() == 1) return;
  while (work_.size() < buckets_.size() && last_block_[work_.size()] < next_block_)
    start_bucket(work_.size());
}

void GradientReducer::wait_all(Profile* profile) {
  TRIREME_CHECK(next_block_ == static_cast<int64_t>(blocks_.size()), "only ", next_block_, " of ",
                blocks_.size(), " gradient blocks are ready");
  const TimeScope scope(profile, TimeCategory::kCommunication);
  const auto start = std::chrono::steady_clock::now();
  if (group_.size() > 1)
    while (work_.size() < buckets_.size()) start_bucket(work_.size());
  busy_seconds_ = 0;
  for (const Work& work : work_) {
    work.wait();
    busy_seconds_ += work.seconds();
  }
  work_.clear();
  next_block_ = 0;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  exposed_seconds_ = spent.count();
}

}  // namespace trireme
