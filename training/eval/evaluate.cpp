#include "training/eval/evaluate.h"

#include <algorithm>

#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/pipeline/make_schedule.h"
#include "training/step/batch_shard.h"

namespace trireme {
namespace {

// Sample number of the `index`-th of `total` samples that are evenly spaced among `all` samples.
int64_t spread_sample(int64_t index, int64_t total, int64_t all) {
  return index * (all / total) + index * (all % total) / total;
}

}  // namespace

Evaluator::Evaluator(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
                     int64_t micro_batch_size, int64_t sequence_length)
    : model_(model),
      store_(store),
      groups_(groups),
      ctx_(ctx),
      micro_batch_size_(micro_batch_size),
      sequence_length_(sequence_length),
      schedule_(make_schedule(ScheduleKind::kForwardOnly, groups.layout.pp.size, model.chunks(),
                              groups.layout.pp.size)),
      executor_(schedule_, *groups.pp),
      stage_(model, store, groups, ctx, sequence_length),
      local_(static_cast<size_t>(groups.layout.pp.size)) {}

double Evaluator::forward() {
  const Activation loss = ctx_.allocate("evaluation.loss", DType::kF64, Shape{1});
  const Activation unused_scale = ctx_.allocate("evaluation.scale", DType::kF64, Shape{1});
  fill_zero(ctx_, loss);
  fill_zero(ctx_, unused_scale);
  // Losses of this rank's tokens; written on ranks with the head.
  std::vector<Activation> losses;
  std::vector<Tensor> views;
  views.reserve(local_.size());
  const DType dtype = store_.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  for (const MicroBatch& local : local_)
    views.push_back(losses.emplace_back(
        ctx_.allocate("evaluation.token_losses", dtype, Shape{std::ssize(local.tokens)})));
  stage_.begin(local_, {loss, unused_scale, {}}, std::move(views));
  executor_.run(stage_, ctx_);
  if (ctx_.planning()) return 0.0;
  if (take_) take_losses(losses);
  const double sum = to_host<double>(ctx_, loss)[0];
  if (ctx_.gpu != nullptr) groups_.world.check_alive();  // a lost rank makes `sum` undefined
  return sum;
}

// Reports token losses on one rank of each tensor-parallel group, since all have the same tokens.
void Evaluator::take_losses(const std::vector<Activation>& losses) const {
  const Layout& layout = groups_.layout;
  if (layout.tp.index != 0 || layout.pp.index + 1 != layout.pp.size) return;
  for (size_t b = 0; b < losses.size(); ++b)
    read_on_host(ctx_, losses[b], [&](const ConstTensor& part, int64_t first) {
      for (int64_t i = 0; i < part.numel(); ++i) {
        const auto token = static_cast<size_t>(first + i);
        if (local_[b].targets[token] == kIgnoredTarget) continue;
        const double loss = part.dtype() == DType::kF64 ? part.as<double>()[i]
                                                        : static_cast<double>(part.as<float>()[i]);
        take_(local_[b].global_index[token], loss);
      }
    });
}

EvalResult Evaluator::run_tokens(BatchSource& source, const ArenaPlan& plan, const TakeLoss& take) {
  take_ = take;
  try {
    const EvalResult result = run(source, 0, plan);
    take_ = {};
    return result;
  } catch (...) {
    take_ = {};
    throw;
  }
}

ArenaPlan Evaluator::plan() {
  const Mode before = std::exchange(ctx_.mode, Mode::kEval);
  whole_ = shape_of_micro_batch(micro_batch_size_, sequence_length_);
  for (MicroBatch& local : local_)
    fill_batch_shard(whole_, sequence_length_, groups_.layout, model_.config(), local);
  ctx_.arena.begin_planning();
  forward();
  ctx_.mode = before;
  return ctx_.arena.end_planning();
}

void Evaluator::fill(BatchSource& source, int64_t begin, int64_t total, int64_t all) {
  // Every pass has the planned size; samples past the end are padding.
  const GroupCoord& dp = groups_.layout.dp;
  for (size_t i = 0; i < local_.size(); ++i) {
    const int64_t group = begin + static_cast<int64_t>(i) * micro_batch_size_ * dp.size;
    const int64_t first = first_sample(group, micro_batch_size_, dp.index);
    samples_.clear();
    for (int64_t k = first; k < first + micro_batch_size_; ++k)
      samples_.push_back(k < total ? spread_sample(k, total, all) : all);
    source.fill_samples(samples_, whole_);
    fill_batch_shard(whole_, sequence_length_, groups_.layout, model_.config(), local_[i]);
  }
}

EvalResult Evaluator::run(BatchSource& source, int64_t max_samples, const ArenaPlan& plan,
                          const std::function<void(int64_t, int64_t)>& progress) {
  const Mode before = std::exchange(ctx_.mode, Mode::kEval);
  const int64_t all = source.num_samples();
  const int64_t total = max_samples > 0 ? std::min(max_samples, all) : all;
  const Layout& layout = groups_.layout;
  const int64_t stride = micro_batch_size_ * layout.dp.size * std::ssize(local_);
  double sums[2] = {0.0, 0.0};  // loss, tokens
  for (int64_t begin = 0; begin < total; begin += stride) {
    fill(source, begin, total, all);
    ctx_.arena.begin_step(plan);
    double loss = 0;
    try {
      loss = forward();
    } catch (...) {
      ctx_.arena.abandon_step();
      ctx_.mode = before;
      throw;
    }
    ctx_.arena.end_step();
    // The tensor-parallel ranks of the last stage compute the same loss; only one of them counts.
    if (layout.tp.index == 0 && layout.pp.index + 1 == layout.pp.size) {
      sums[0] += loss;
      for (const MicroBatch& local : local_)
        sums[1] += static_cast<double>(std::ssize(local.targets) -
                                       std::ranges::count(local.targets, kIgnoredTarget));
    }
    if (progress) progress(std::min(total, begin + stride), total);
  }
  if (groups_.world.size() > 1) groups_.world.all_reduce(Tensor(sums, DType::kF64, Shape{2}));
  ctx_.mode = before;
  return {sums[1] > 0 ? sums[0] / sums[1] : 0.0, static_cast<int64_t>(sums[1]), total, all};
}

std::vector<double> Evaluator::log_likelihoods(const ExampleSet& set, ExampleSource& source,
                                               const ArenaPlan& plan) {
  std::vector<double> sums(static_cast<size_t>(set.documents()), 0.0);
  run_tokens(source, plan, [&](int64_t row, double loss) {
    sums[static_cast<size_t>(source.document_of(row))] -= loss;
  });
  if (groups_.world.size() > 1)
    groups_.world.all_reduce(Tensor(sums.data(), DType::kF64, Shape{std::ssize(sums)}));
  return sums;
}

}  // namespace trireme
