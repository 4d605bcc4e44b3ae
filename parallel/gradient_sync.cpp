#include "parallel/gradient_sync.h"

#include <utility>

#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/wait_scope.h"

namespace trireme {

GradientSync::GradientSync(const Groups& groups, ParameterStore& store, Ctx& ctx,
                           const Options& options, CompressedGradientSum* compressed)
    : groups_(groups),
      store_(store),
      ctx_(ctx),
      options_(options),
      compressed_(compressed),
      accumulated_(static_cast<size_t>(store.blocks()), false) {}

// Waits, because after a failure a reduction may still be writing to the arena.
GradientSync::~GradientSync() {
  for (const Pending& pending : pending_)
    for (const Work& work : pending.work) try {
        work.wait();
      } catch (const Error&) {  // NOLINT: the waiting caller has this error already
      }
}

GradientReducer& GradientSync::reducer(Region region) {
  std::unique_ptr<GradientReducer>& known = reducers_[static_cast<size_t>(region)];
  if (!known) {
    // Backward usually completes the last block first.
    std::vector<FlatRange> order;
    for (int b = store_.blocks(); b-- > 0;) order.push_back(store_.block_range(b, region));
    known = std::make_unique<GradientReducer>(groups_.of(region), store_.flat_gradients(), order,
                                              options_);
  }
  return *known;
}

void GradientSync::add_parts(int block) {
  for (const PartialRange& part : store_.partial_ranges(block)) {
    if (part.sum == PartialSum::kTiedStages) continue;
    Communicator& group = part.sum == PartialSum::kTensor ? *groups_.tp : *groups_.kv;
    if (group.size() > 1) group.all_reduce(store_.whole_gradients(block, part.range));
  }
}

// Sums a tied table over its two stages once each has its own sum over micro-batches. The pipeline
// is empty then. In the middle of a step one stage would wait for the other, which may itself need
// messages of the first to get there.
void GradientSync::add_tied_stages(const ShardMap& reduced) {
  Communicator& group = *groups_.tied;
  if (group.size() == 1) return;
  const WaitScope waiting(ctx_.profile, waiting_seconds_);
  for (int block = 0; block < store_.blocks(); ++block)
    for (const PartialRange& part : store_.partial_ranges(block)) {
      if (part.sum != PartialSum::kTiedStages) continue;
      reduced.for_each(part.range, [&](const FlatRange& piece, int64_t) {
        const int64_t at = store_.gradient_map().offset(piece.begin);
        group.all_reduce(store_.flat_gradients().slice(0, at, at + piece.size()));
      });
    }
}

void GradientSync::scatter(int block) {
  Pending& pending = pending_.emplace_back();
  pending.block = block;
  if (!ctx_.planning())
    for (const Tile& tile : store_.block_tiles(block)) {
      Communicator& group = groups_.of(tile.region);
      if (group.size() > 1 && is_trained(tile.region))
        pending.work.push_back(
            group.reduce_scatter_v_async(store_.whole_gradients(block, tile.range)));
    }
  // The next micro-batch writes to other memory.
  if (store_.sharding().stage >= 2) pending.whole = store_.take_gradients(block);
}

// Waits for a block's reduction. Where gradients are stored as shards, also adds this rank's piece
// and frees the whole block.
void GradientSync::finish_reduction(Pending& pending) {
  if (ctx_.planning()) return;
  {
    const WaitScope waiting(ctx_.profile, waiting_seconds_);
    for (const Work& work : pending.work) work.wait();
  }
  if (!pending.whole.present()) return;
  const bool first = !accumulated_[static_cast<size_t>(pending.block)];
  accumulated_[static_cast<size_t>(pending.block)] = true;
  for (const Tile& tile : store_.block_tiles(pending.block)) {
    if (!is_trained(tile.region)) continue;
    store_.owned().for_each(tile.range, [&](const FlatRange& piece, int64_t at) {
      const Tensor sum = store_.flat_gradients().slice(0, at, at + piece.size());
      const Tensor mine = pending.whole.view(piece);
      if (first)
        transfer(ctx_, sum, mine);
      else
        add(ctx_, sum, sum, mine);
    });
  }
}

void GradientSync::block_done(int block, bool last) {
  const int stage = store_.sharding().stage;
  if (stage < 2 && (!last || ctx_.planning())) return;
  store_.finish_gradients(ctx_, block);
  if (!ctx_.planning()) add_parts(block);
  if (!compresses()) sum_exactly(block);
}

void GradientSync::sum_exactly(int block) {
  const int stage = store_.sharding().stage;
  if (stage == 0) {
    for (const Region region : kTrainedRegions)
      if (store_.region_range(region).size() > 0) reducer(region).block_ready(position(block));
    return;
  }
  // With sharded gradients at most two whole blocks exist: the one being reduced and the one being
  // written.
  scatter(block);
  const size_t keep = !options_.overlap ? 0 : stage == 1 ? pending_.size() : 1;
  while (pending_.size() > keep) {
    finish_reduction(pending_.front());
    pending_.erase(pending_.begin());
  }
}

// Completes the exact sums.
void GradientSync::finish_exactly() {
  for (Pending& pending : pending_) finish_reduction(pending);
  pending_.clear();  // frees the whole blocks
  accumulated_.assign(accumulated_.size(), false);
  if (ctx_.planning()) return;
  {
    const WaitScope waiting(nullptr, waiting_seconds_);
    for (const auto& reducer : reducers_)
      if (reducer) reducer->wait_all(ctx_.profile);
  }
  add_tied_stages(store_.sharding().stage == 0 ? store_.gradient_map() : store_.owned());
}

void GradientSync::finish(const ConstTensor& loss) {
  if (!compresses()) finish_exactly();
  if (compressed_ != nullptr) {
    // A tied table has the same bits on both stages after its sum, and thereby the same code.
    const double waited =
        compressed_->finish(loss, [this] { add_tied_stages(store_.gradient_map()); });
    waiting_seconds_ += waited;
  }
  exposed_seconds_ = std::exchange(waiting_seconds_, 0);
}

}  // namespace trireme
