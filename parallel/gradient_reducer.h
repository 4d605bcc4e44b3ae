// Bucketed all-reduce of flat gradients over a group, overlapped with the rest of backward.
#pragma once

#include "engine/core/profile.h"
#include "parallel/comm/communicator.h"
#include "parallel/parameter_store.h"

namespace trireme {

class GradientReducer {
 public:
  struct Options {
    int64_t bucket_bytes = 25 << 20;
    bool overlap =
        true;  // false: everything is started by wait_all(); the results are the same bits
  };

  ~GradientReducer();  // waits: after a failure a reduction may still write to the gradients
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  // gradients: flat (n), any dtype that all_reduce supports. blocks: disjoint ranges in the order
  // in which backward usually completes them (last transformer block first). A bucket is a
  // contiguous range of at most bucket_bytes: adjacent blocks are joined as long as they fit, a
  // larger block is split evenly. The group must outlive this object.
  GradientReducer(Communicator& group, const Tensor& gradients, std::vector<FlatRange> blocks,
                  const Options& options);

  // Marks block `index` (in `blocks`) as holding its final local gradient. With Options::overlap,
  // starts each bucket of which it is the last missing block. Call once per step and block, in the
  // same order on all ranks of the group.
  void block_ready(int64_t index);
  // Starts the remaining buckets, waits for all, and resets for the next step. Every block must be
  // ready. Adds the caller's waiting time to TimeCategory::kCommunication.
  void wait_all(Profile* profile);

  // Element ranges of `gradients`.
  const std::vector<FlatRange>& buckets() const { return buckets_; }
  // Durations of the last step's all-reduces, added up (Work::seconds).
  double busy_seconds() const { return busy_seconds_; }

 private:
  void start_bucket(size_t bucket);
  void expect_all_blocks();

  Communicator& group_;
  Tensor gradients_;
  std::vector<FlatRange> blocks_;
  Options options_;
  std::vector<FlatRange> buckets_;
  std::vector<FlatRange> joined_;  // by bucket: range of block indices
  std::vector<int64_t> missing_;   // by bucket: blocks not ready yet
  std::vector<bool> ready_;        // by block
  std::vector<Work> work_;         // by bucket
  double busy_seconds_ = 0;
};

}  // namespace trireme
