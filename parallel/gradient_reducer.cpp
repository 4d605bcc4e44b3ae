#include "parallel/gradient_reducer.h"

#include <algorithm>

#include "parallel/comm/collectives/collectives.h"

namespace trireme {
namespace {

// Extends `range` by `block` if the two touch; false if they do not.
bool join(FlatRange& range, const FlatRange& block) {
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

void check_disjoint(std::vector<FlatRange> blocks, int64_t n) {
  std::ranges::sort(blocks, {}, &FlatRange::begin);
  int64_t end = 0;
  for (const FlatRange& b : blocks) {
    if (b.begin == b.end) continue;
    TRIREME_CHECK(b.begin >= end && b.end >= b.begin && b.end <= n, "gradient block [", b.begin,
                  ", ", b.end, ") overlaps another or leaves the ", n, " gradients");
    end = b.end;
  }
}

}  // namespace

GradientReducer::GradientReducer(Communicator& group, const Tensor& gradients,
                                 std::vector<FlatRange> blocks, const Options& options)
    : group_(group), gradients_(gradients), blocks_(std::move(blocks)), options_(options) {
  check_contiguous("gradient reducer", "gradients", gradients);
  TRIREME_CHECK(gradients.rank() == 1, "gradients are ", gradients.shape(), ", expected (n)");
  TRIREME_CHECK(options.bucket_bytes > 0, "buckets of ", options.bucket_bytes,
                " bytes, expected at least 1");
  check_disjoint(blocks_, gradients.numel());
  const int64_t most = std::max<int64_t>(1, options.bucket_bytes / dtype_size(gradients.dtype()));

  FlatRange open, members;
  const auto close = [&] {
    const int64_t n = open.end - open.begin;
    const int pieces = narrow<int>(ceil_div(n, most));
    for (int p = 0; p < pieces; ++p) {
      const Piece piece = piece_of(n, pieces, p);
      buckets_.push_back({open.begin + piece.begin, open.begin + piece.end});
      joined_.push_back(members);
    }
    open = {};
  };
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const FlatRange& block = blocks_[i];
    if (block.begin == block.end) continue;
    const int64_t joined = (open.end - open.begin) + (block.end - block.begin);
    const bool fits = open.begin == open.end || joined <= most;
    if (!fits) close();
    const auto index = static_cast<int64_t>(i);
    if (open.begin != open.end && !join(open, block)) close();
    if (open.begin == open.end) {
      open = block;
      members.begin = index;
    }
    members.end = index + 1;
  }
  close();
  expect_all_blocks();
}

GradientReducer::~GradientReducer() {
  for (const Work& work : work_) try {
      work.wait();
    } catch (const Error&) {  // NOLINT: the waiting caller has this error already
    }
}

void GradientReducer::expect_all_blocks() {
  ready_.assign(blocks_.size(), false);
  work_.assign(buckets_.size(), Work());
  missing_.clear();
  for (const FlatRange& members : joined_) {
    int64_t blocks = 0;
    for (int64_t i = members.begin; i < members.end; ++i)
      if (blocks_[static_cast<size_t>(i)].size() > 0) ++blocks;
    missing_.push_back(blocks);
  }
}

void GradientReducer::start_bucket(size_t bucket) {
  const FlatRange& range = buckets_[bucket];
  work_[bucket] = group_.all_reduce_async(gradients_.slice(0, range.begin, range.end));
}

void GradientReducer::block_ready(int64_t index) {
  const auto at = static_cast<size_t>(index);
  TRIREME_CHECK(at < blocks_.size() && !ready_[at], "gradient block ", index, " of ",
                blocks_.size(), " is ready twice or unknown");
  ready_[at] = true;
  if (blocks_[at].size() == 0) return;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (index < joined_[b].begin || index >= joined_[b].end) continue;
    if (--missing_[b] == 0 && options_.overlap && group_.size() > 1) start_bucket(b);
  }
}

void GradientReducer::wait_all(Profile* profile) {
  const auto waiting = std::ranges::count(ready_, false);
  TRIREME_CHECK(waiting == 0, waiting, " of ", blocks_.size(), " gradient blocks are not ready");
  const TimeScope scope(profile, TimeCategory::kCommunication);
  if (group_.size() > 1 && !options_.overlap)
    for (size_t b = 0; b < buckets_.size(); ++b) start_bucket(b);
  busy_seconds_ = 0;
  for (const Work& work : work_) {
    work.wait();
    busy_seconds_ += work.seconds();
  }
  expect_all_blocks();
}

}  // namespace trireme
