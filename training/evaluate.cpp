#include "training/evaluate.h"

#include <algorithm>

#include "engine/ops/cross_entropy.h"
#include "training/local_batch.h"

namespace trireme {

Evaluator::Evaluator(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
                     int64_t micro_batch_size, int64_t sequence_length)
    : model_(model),
      store_(store),
      groups_(groups),
      ctx_(ctx),
      micro_batch_size_(micro_batch_size),
      sequence_length_(sequence_length) {}

void Evaluator::micro_batch(const MicroBatch& batch, const Tensor& loss_sum) {
  fill_local_batch(batch, sequence_length_, groups_.layout, local_);
  const Tokens tokens = tokens_of(local_);
  Pass pass{ctx_, store_, tokens, &groups_};
  double unused_scale = 1.0;
  Activation x;
  for (int chunk = 0; chunk < model_.chunks(); ++chunk)
    x = model_.forward(pass, chunk, std::move(x), nullptr, Recompute::kNone);
  model_.loss(pass, std::move(x), {loss_sum, Tensor(&unused_scale, DType::kF64, Shape{1}), {}});
}

ArenaPlan Evaluator::plan() {
  const Mode before = std::exchange(ctx_.mode, Mode::kEval);
  ctx_.arena.begin_planning();
  micro_batch(shape_of_micro_batch(micro_batch_size_, sequence_length_),
              Tensor(nullptr, DType::kF64, Shape{1}));
  ctx_.mode = before;
  return ctx_.arena.end_planning();
}

EvalResult Evaluator::run(BatchSource& source, int64_t max_samples, const ArenaPlan& plan,
                          const std::function<void(int64_t, int64_t)>& progress) {
  const Mode before = std::exchange(ctx_.mode, Mode::kEval);
  const int64_t all = source.num_samples();
  const int64_t total = max_samples > 0 ? std::min(max_samples, all) : all;
  const Layout& layout = groups_.layout;
  const int64_t stride = micro_batch_size_ * layout.dp.size;
  double sums[2] = {0.0, 0.0};  // loss, tokens
  for (int64_t begin = 0; begin < total; begin += stride) {
    const int64_t first = first_sample(begin, micro_batch_size_, layout.dp.index);
    if (first < total) {
      // Every call has the planned size; samples past the end are padding, those past max_samples
      // are masked here.
      source.fill(first, micro_batch_size_, batch_);
      const int64_t wanted = std::min(micro_batch_size_, total - first) * sequence_length_;
      std::fill(batch_.targets.begin() + wanted, batch_.targets.end(), kIgnoredTarget);
      double loss = 0;
      ctx_.arena.begin_step(plan);
      micro_batch(batch_, Tensor(&loss, DType::kF64, Shape{1}));
      ctx_.arena.end_step();
      // Tensor-parallel ranks compute the same loss: one of them counts.
      if (layout.tp.index == 0) {
        sums[0] += loss;
        sums[1] += static_cast<double>(std::ssize(local_.targets) -
                                       std::ranges::count(local_.targets, kIgnoredTarget));
      }
    }
    if (progress) progress(std::min(total, begin + stride), total);
  }
  if (groups_.world.size() > 1) groups_.world.all_reduce(Tensor(sums, DType::kF64, Shape{2}));
  ctx_.mode = before;
  return {sums[1] > 0 ? sums[0] / sums[1] : 0.0, static_cast<int64_t>(sums[1])};
}

}  // namespace trireme
