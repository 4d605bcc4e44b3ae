#include "parallel/outer/compressed_gradient_sum.h"

#include <cmath>
#include <utility>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/wait_scope.h"

namespace trireme {

CompressedGradientSum::CompressedGradientSum(const Groups& groups, const ParameterStore& store,
                                             Ctx& ctx, GradientCompression& compression,
                                             Moments moments)
    : groups_(groups),
      store_(store),
      ctx_(ctx),
      compression_(compression),
      moments_(std::move(moments)) {
  TRIREME_CHECK(!moments_.moment || (compression.moment_beta() > 0 && store.sharding().stage == 0 &&
                                     compression.region(Region::kExpert) == nullptr),
                "moments are exchanged at ZeRO stage 0, without experts");
  for (const Region region : kTrainedRegions)
    if (compression.region(region) != nullptr)
      sums_.push_back(
          std::make_unique<RegionSum>(groups.of(region), region, *compression.region(region), ctx));
}

double CompressedGradientSum::finish(const ConstTensor& loss,
                                     const std::function<void()>& between) {
  sent_moments_ = false;
  waiting_seconds_ = 0;
  const Arena::Region scratch(ctx_.arena, "compressed gradients");
  if (!is_active()) return 0;
  if (!ctx_.planning()) {
    sum_exactly(&SumGroups::inner);
    between();
  }
  if (!may_encode(loss)) {
    sum_exactly(&SumGroups::outer);
    return waiting_seconds_;
  }
  if (moments_.moment)
    sum_moments();
  else
    sum_compressed();
  if (!ctx_.planning()) share_in_sites();
  return waiting_seconds_;
}

// Stored gradients; without memory in a planning run.
Tensor CompressedGradientSum::gradients() const {
  if (!ctx_.planning()) return store_.flat_gradients();
  return {nullptr, store_.gradient_dtype(), Shape{store_.gradient_map().size()}};
}

// Whether the gradients and losses of all ranks are finite and far from the largest float32.
bool CompressedGradientSum::may_encode(const ConstTensor& loss) {
  const Activation squares = ctx_.allocate("compressed_gradients.squares", DType::kF64, {1});
  fill_zero(ctx_, *squares);
  sum_of_squares(ctx_, *squares, gradients());
  sum_of_squares(ctx_, *squares, loss);
  const bool may = to_host<double>(ctx_, *squares).front() < kMaxEncodedSquares;  // false for NaN
  return ctx_.planning() || groups_.world.all_reduce_scalar(int64_t{may}, ReduceOp::kMin) != 0;
}

// Sums each region over `level` of its groups.
void CompressedGradientSum::sum_exactly(std::unique_ptr<Communicator> SumGroups::*level) {
  const WaitScope waiting(ctx_.profile, waiting_seconds_);
  for (const auto& its : sums_) {
    if ((its->groups.*level)->size() == 1) continue;
    const FlatRange range = store_.region_range(its->region);
    (its->groups.*level)->all_reduce(gradients().slice(0, range.begin, range.end));
  }
}

// Gives all ranks of a site the pieces that each of them has summed over the sites.
void CompressedGradientSum::share_in_sites() {
  const WaitScope waiting(ctx_.profile, waiting_seconds_);
  for (const auto& its : sums_) {
    if (its->groups.inner->size() == 1) continue;
    for (int rank = 0; rank < its->groups.inner->size(); ++rank) {
      const FlatRange& piece = its->sum.pieces[static_cast<size_t>(rank)];
      if (piece.size() > 0)
        its->groups.inner->broadcast(gradients().slice(0, piece.begin, piece.end), rank);
    }
  }
}

void CompressedGradientSum::sum_compressed() {
  for (const auto& its : sums_) its->all_reduce.start(gradients(), ctx_.step);
  for (const auto& its : sums_) {
    its->all_reduce.finish(gradients());
    waiting_seconds_ += its->all_reduce.waiting_seconds();
  }
}

void CompressedGradientSum::sum_moments() {
  const double beta = compression_.moment_beta(), factor = beta / (1 - beta);
  if (moments_.clip > 0) clip_replicas();
  for (const auto& its : sums_) add_moment(*its, factor / its->groups.outer->size());
  sum_compressed();
  for (const auto& its : sums_) add_moment(*its, -factor);
  sent_moments_ = !ctx_.planning();
}

// Scales gradients to the largest norm. All ranks scale by the same factor.
void CompressedGradientSum::clip_replicas() {
  const Activation squares =
      ctx_.allocate("compressed_gradients.replica_squares", DType::kF64, {1});
  fill_zero(ctx_, *squares);
  for (const FlatRange& range : store_.counted_ranges())
    sum_of_squares(ctx_, *squares, gradients().slice(0, range.begin, range.end));
  if (ctx_.planning()) return;
  // The gradients of R replicas are parts of the mean, R times smaller than a replica's own; all
  // ranks of a replica have the same.
  double replicas_squares = 0;
  for (const auto& its : sums_)
    replicas_squares = to_host<double>(ctx_, *squares).front() * its->groups.outer->size() /
                       its->groups.inner->size();
  const double norm = std::sqrt(groups_.world.all_reduce_scalar(replicas_squares, ReduceOp::kSum));
  if (norm > moments_.clip)
    scale(ctx_, gradients(), gradients(), moments_.clip / (norm + 1e-6), FactorRounding::kProduct);
}

// Adds factor times the moment to this rank's compressed parts of the gradients.
void CompressedGradientSum::add_moment(const RegionSum& its, double factor) {
  for (const CompressionState::Piece& piece : its.sum.state.pieces())
    for (const CompressionState::Encoder& e : piece) {
      if (e.part.exact) continue;
      const FlatRange range = e.part.range();
      const Activation scaled = ctx_.allocate("compressed_gradients.moment",
                                              store_.gradient_dtype(), Shape{range.size()});
      if (ctx_.planning()) continue;
      const Tensor part = gradients().slice(0, range.begin, range.end);
      scale(ctx_, *scaled, moments_.moment().slice(0, range.begin, range.end), factor,
            FactorRounding::kProduct);
      add(ctx_, part, part, *scaled);
    }
}

}  // namespace trireme
