// Sums flat gradients over a group in buckets, while backward still computes the earlier blocks.
#pragma once

#include "engine/core/profile.h"
#include "parallel/comm/communicator.h"

namespace trireme {

struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
};

class GradientReducer {
 public:
  struct Options {
    int64_t bucket_bytes = 25 << 20;
    bool overlap =
        true;  // false: everything is started by wait_all(); the results are the same bits
  };

  // gradients: flat (n), any dtype all_reduce takes. blocks: disjoint ranges in the order in which
  // backward completes them (last transformer block first). A bucket is a contiguous range of at
  // most about bucket_bytes: neighbouring blocks are joined, a larger block is split evenly. The
  // group must outlive this object.
  GradientReducer(Communicator& group, const Tensor& gradients, std::vector<ElementRange> blocks,
                  const Options& options);

  // Block `index` holds its final local gradient. Call for 0, 1, 2, ... once per step.
  void block_ready(int64_t index);
  // Starts what is left, waits for all, and readies the reducer for the next step. All blocks must
  // have been ready. The time the caller waits here is added to kCommunication.
  void wait_all(Profile* profile);

  const std::vector<ElementRange>& buckets() const { return buckets_; }
  double exposed_seconds() const { return exposed_seconds_; }  // caller's waiting in the last step
  double busy_seconds() const { return busy_seconds_; }  // time inside all-reduces in that step

 private:
  void start_bucket(size_t bucket);

  Communicator& group_;
  Tensor gradients_;
  std::vector<ElementRange> blocks_;
  Options options_;
  std::vector<ElementRange> buckets_;
  std::vector<int64_t> last_block_;  // of each bucket: ready when this block is
  std::vector<Work> work_;
  int64_t next_block_ = 0;
  double exposed_seconds_ = 0;
  double busy_seconds_ = 0;
};

}  // namespace trireme
