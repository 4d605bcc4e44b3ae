#include "parallel/gradient_sync.h"

#include <chrono>

namespace trireme {

GradientSync::GradientSync(const Groups& groups, ParameterStore& store, const Options& options)
    : groups_(groups), store_(store) {
  for (int r = 0; r < kRegions; ++r) {
    const auto region = static_cast<Region>(r);
    std::unique_ptr<GradientReducer>& reducer = reducers_.emplace_back();
    if (store.region_range(region).size() == 0) continue;
    // Backward usually completes the last block first.
    std::vector<FlatRange> order;
    for (int b = store.blocks(); b-- > 0;) order.push_back(store.block_range(b, region));
    Communicator& group = region == Region::kDense ? *groups.data : *groups.edp;
    reducer = std::make_unique<GradientReducer>(group, store.flat_gradients(), order, options);
  }
}

int GradientSync::position(int block) const { return store_.blocks() - 1 - block; }

bool GradientSync::waits_for_other_stage(int block) const {
  for (const PartialRange& part : store_.partial_ranges(block))
    if (part.sum == PartialSum::kTiedStages && groups_.tied->size() > 1) return true;
  return false;
}

void GradientSync::add_parts(int block) {
  for (const PartialRange& part : store_.partial_ranges(block)) {
    Communicator& group = part.sum == PartialSum::kTensor     ? *groups_.tp
                          : part.sum == PartialSum::kKvCopies ? *groups_.kv
                                                              : *groups_.tied;
    if (group.size() == 1) continue;
    group.all_reduce(store_.flat_gradients().slice(0, part.range.begin, part.range.end));
  }
}

void GradientSync::block_ready(int block) {
  store_.finish_gradients(block);
  // The other stage may need messages of ours before it gets there: not while the pipeline runs.
  if (waits_for_other_stage(block)) {
    late_.push_back(block);
    return;
  }
  add_parts(block);
  for (const auto& reducer : reducers_)
    if (reducer) reducer->block_ready(position(block));
}

void GradientSync::wait_all(Profile* profile) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const TimeScope scope(profile, TimeCategory::kCommunication);
    for (const int block : late_) {
      add_parts(block);
      for (const auto& reducer : reducers_)
        if (reducer) reducer->block_ready(position(block));
    }
    late_.clear();
  }
  for (const auto& reducer : reducers_)
    if (reducer) reducer->wait_all(profile);
  exposed_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double GradientSync::exposed_seconds() const { return exposed_seconds_; }

}  // namespace trireme
