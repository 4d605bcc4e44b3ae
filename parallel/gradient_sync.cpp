#include "parallel/gradient_sync.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

GradientSync::GradientSync(const Groups& groups, ParameterStore& store, Ctx& ctx,
                           const Options& options, GradientCompression* compression)
    : groups_(groups),
      store_(store),
      ctx_(ctx),
      options_(options),
      compression_(compression),
      accumulated_(static_cast<size_t>(store.blocks()), false) {
  for (const Region region : kTrainedRegions)
    if (compression != nullptr && compression->region(region) != nullptr)
      compressed_[static_cast<size_t>(region)] = std::make_unique<CompressedSum>(
          groups.of(region), region, *compression->region(region), ctx);
}

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
  const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
  const auto begin = std::chrono::steady_clock::now();
  for (int block = 0; block < store_.blocks(); ++block)
    for (const PartialRange& part : store_.partial_ranges(block)) {
      if (part.sum != PartialSum::kTiedStages) continue;
      reduced.for_each(part.range, [&](const FlatRange& piece, int64_t) {
        const int64_t at = store_.gradient_map().offset(piece.begin);
        group.all_reduce(store_.flat_gradients().slice(0, at, at + piece.size()));
      });
    }
  waiting_seconds_ += seconds_since(begin);
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
  const auto begin = std::chrono::steady_clock::now();
  {
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    for (const Work& work : pending.work) work.wait();
  }
  waiting_seconds_ += seconds_since(begin);
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

bool GradientSync::compresses() const {
  return compression_ != nullptr && compression_->compresses(ctx_.step);
}

// Whether the gradients and losses of all ranks are finite and small enough to encode.
bool GradientSync::may_encode(const ConstTensor& loss) {
  const Activation squares = ctx_.allocate("gradient_sync.squares", DType::kF64, {1});
  fill_zero(ctx_, *squares);
  sum_of_squares(ctx_, *squares, gradients());
  sum_of_squares(ctx_, *squares, loss);
  const bool may = to_host<double>(ctx_, *squares).front() < kMaxEncodedSquares;  // false for NaN
  return ctx_.planning() || groups_.world.all_reduce_scalar(int64_t{may}, ReduceOp::kMin) != 0;
}

// Stored gradients; without memory in a planning run.
Tensor GradientSync::gradients() const {
  if (!ctx_.planning()) return store_.flat_gradients();
  return {nullptr, store_.gradient_dtype(), Shape{store_.gradient_map().size()}};
}

// Sums each region over `level` of its groups, exactly.
void GradientSync::sum_over(std::unique_ptr<Communicator> SumGroups::*level) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    for (const Region region : kTrainedRegions) {
      const auto& its = compressed_[static_cast<size_t>(region)];
      if (!its || (its->groups.*level)->size() == 1) continue;
      const FlatRange range = store_.region_range(region);
      (its->groups.*level)->all_reduce(gradients().slice(0, range.begin, range.end));
    }
  }
  waiting_seconds_ += seconds_since(begin);
}

// Gives all ranks of a replica the pieces that each of them has summed over the replicas.
void GradientSync::share_in_replicas() {
  const auto begin = std::chrono::steady_clock::now();
  {
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    for (const auto& its : compressed_) {
      if (!its || its->groups.inner->size() == 1) continue;
      for (int rank = 0; rank < its->groups.inner->size(); ++rank) {
        const FlatRange& piece = its->sum.pieces[static_cast<size_t>(rank)];
        if (piece.size() > 0)
          its->groups.inner->broadcast(gradients().slice(0, piece.begin, piece.end), rank);
      }
    }
  }
  waiting_seconds_ += seconds_since(begin);
}

void GradientSync::sum_compressed() {
  for (const auto& its : compressed_)
    if (its) its->all_reduce.start(gradients(), ctx_.step);
  for (const auto& its : compressed_) {
    if (!its) continue;
    its->all_reduce.finish(gradients());
    waiting_seconds_ += its->all_reduce.waiting_seconds();
  }
}

void GradientSync::send_moments(std::function<ConstTensor()> moment, double clip) {
  TRIREME_CHECK(compression_ != nullptr && compression_->moment_beta() > 0 &&
                    store_.sharding().stage == 0 &&
                    !compressed_[static_cast<size_t>(Region::kExpert)],
                "moments are exchanged at ZeRO stage 0, compressed, without experts");
  moment_ = std::move(moment);
  clip_ = clip;
}

// Scales gradients to the largest norm. All ranks scale by the same factor.
void GradientSync::clip_replicas() {
  const Activation squares = ctx_.allocate("gradient_sync.replica_squares", DType::kF64, {1});
  fill_zero(ctx_, *squares);
  for (const FlatRange& range : store_.counted_ranges())
    sum_of_squares(ctx_, *squares, gradients().slice(0, range.begin, range.end));
  if (ctx_.planning()) return;
  // The gradients of R replicas are parts of the mean, R times smaller than a replica's own; all
  // ranks of a replica have the same.
  double replicas_squares = 0;
  if (const auto& its = compressed_[static_cast<size_t>(Region::kDense)])
    replicas_squares = to_host<double>(ctx_, *squares).front() * its->groups.outer->size() /
                       its->groups.inner->size();
  const double norm = std::sqrt(groups_.world.all_reduce_scalar(replicas_squares, ReduceOp::kSum));
  if (norm > clip_)
    scale(ctx_, gradients(), gradients(), clip_ / (norm + 1e-6), FactorRounding::kProduct);
}

// Adds factor times the moment to this rank's compressed parts of the gradients.
void GradientSync::add_moment(const CompressedSum& its, double factor) {
  for (const CompressionState::Piece& piece : its.sum.state.pieces())
    for (const CompressionState::Encoder& e : piece) {
      if (e.part.exact) continue;
      const FlatRange range = e.part.range();
      const Activation scaled =
          ctx_.allocate("gradient_sync.moment", store_.gradient_dtype(), Shape{range.size()});
      if (ctx_.planning()) continue;
      const Tensor part = gradients().slice(0, range.begin, range.end);
      scale(ctx_, *scaled, moment_().slice(0, range.begin, range.end), factor,
            FactorRounding::kProduct);
      add(ctx_, part, part, *scaled);
    }
}

void GradientSync::sum_moments() {
  const double beta = compression_->moment_beta(), factor = beta / (1 - beta);
  const auto& its = compressed_[static_cast<size_t>(Region::kDense)];
  if (clip_ > 0) clip_replicas();
  if (its) add_moment(*its, factor / its->groups.outer->size());
  sum_compressed();
  if (its) add_moment(*its, -factor);
  sent_moments_ = !ctx_.planning();
}

// Completes the exact sums.
void GradientSync::finish_exactly() {
  for (Pending& pending : pending_) finish_reduction(pending);
  pending_.clear();  // frees the whole blocks
  accumulated_.assign(accumulated_.size(), false);
  if (ctx_.planning()) return;
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& reducer : reducers_)
    if (reducer) reducer->wait_all(ctx_.profile);
  waiting_seconds_ += seconds_since(begin);
  add_tied_stages(store_.sharding().stage == 0 ? store_.gradient_map() : store_.owned());
}

void GradientSync::finish_compressed(const ConstTensor& loss) {
  if (!ctx_.planning()) {
    sum_over(&SumGroups::inner);
    // A tied table has the same bits on both stages from here on, and thereby the same code.
    add_tied_stages(store_.gradient_map());
  }
  if (!may_encode(loss)) return sum_over(&SumGroups::outer);
  if (moment_)
    sum_moments();
  else
    sum_compressed();
  if (!ctx_.planning()) share_in_replicas();
}

void GradientSync::finish(const ConstTensor& loss) {
  sent_moments_ = false;
  std::optional<Arena::Region> scratch;  // exact steps of a run with compression need none
  if (compression_ != nullptr) scratch.emplace(ctx_.arena, "compressed gradients");
  const bool plans = ctx_.planning() && compression_ != nullptr;
  if (plans || compresses())
    finish_compressed(loss);
  else
    finish_exactly();
  exposed_seconds_ = std::exchange(waiting_seconds_, 0);
}

}  // namespace trireme
