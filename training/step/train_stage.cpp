#include "training/step/train_stage.h"

#include <utility>

namespace trireme {
namespace {

Activation hidden_state(const Model& model, const ParameterStore& store, const Groups& groups,
                        Ctx& ctx, const MicroBatch& batch) {
  const int64_t rows = std::ssize(batch.tokens) / groups.layout.token_split().size;
  return ctx.allocate("pipeline.hidden", store.dtype(), Shape{rows, model.config().hidden_size});
}

}  // namespace

TrainStage::TrainStage(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
                       const Options& options)
    : model_(model),
      store_(store),
      groups_(groups),
      ctx_(ctx),
      options_(options),
      batches_(ctx, options.sequence_length, model.config().attention_chunk),
      passes_left_(static_cast<size_t>(store.blocks())),
      work_(static_cast<size_t>(options.micro_batches * model.chunks())) {
  count_block_ = [this](int block) {
    if (recording_) return recorded_blocks_.push_back(block);
    const bool last = --passes_left_[static_cast<size_t>(block)] == 0;
    if (block_done_) block_done_(block, last);
  };
}

void TrainStage::begin(const std::vector<MicroBatch>& batches, const Loss& loss,
                       StoreBlockDone block_done) {
  TRIREME_CHECK(std::ssize(batches) == options_.micro_batches, batches.size(),
                " micro-batches, expected ", options_.micro_batches, " per step");
  batches_.place(batches);
  loss_ = loss;
  block_done_ = std::move(block_done);
  preferences_ = {};
  recording_ = false;  // it may still be set, if a capture failed
  recorded_blocks_.clear();
  passes_left_.assign(passes_left_.size(), options_.micro_batches);
}

TrainStage::Work& TrainStage::work(int chunk, int micro_batch) {
  return work_[static_cast<size_t>(chunk * options_.micro_batches + micro_batch)];
}

template <class Run>
auto TrainStage::with_pass(int micro_batch, const Run& run) {
  Tokens tokens = recording_ ? batches_.fixed_tokens(micro_batch) : batches_.tokens(micro_batch);
  tokens.sequence_length = options_.sequence_length;
  Pass pass{ctx_, store_, tokens, &groups_};
  pass.loss_scale = loss_.scale;
  pass.router_losses = loss_.router_losses;
  pass.float8 = model_.float8();
  return run(pass);
}

Activation TrainStage::forward(int chunk, int micro_batch, Activation x) {
  return with_pass(micro_batch, [&](Pass& pass) {
    Work& w = work(chunk, micro_batch);
    Activation y = model_.forward(pass, chunk, std::move(x), &w.saved, options_.recompute);
    if (!model_.has_head(chunk)) return y;
    w.output = std::move(y);
    return Activation();
  });
}

Activation TrainStage::head_gradient(Pass& pass, int micro_batch, Work& w) {
  Loss loss = loss_;
  loss.per_token = {};
  const PreferenceTask task{options_.preferences, batches_.batch(micro_batch).pairs, &preferences_};
  if (options_.preferences != nullptr) loss.preferences = &task;
  return model_.loss_and_backward(pass, std::move(w.output), loss, count_block_);
}

Activation TrainStage::backward_input(int chunk, int micro_batch, Activation dy) {
  return with_pass(micro_batch, [&](Pass& pass) {
    Work& w = work(chunk, micro_batch);
    if (model_.has_head(chunk)) dy = head_gradient(pass, micro_batch, w);
    if (!options_.split_backward)
      return model_.backward(pass, chunk, std::move(dy), std::move(w.saved), options_.recompute,
                             count_block_);
    return model_.backward_input(pass, chunk, std::move(dy), std::move(w.saved), options_.recompute,
                                 w.deferred);
  });
}

void TrainStage::backward_weight(int chunk, int micro_batch) {
  if (!options_.split_backward) return;  // backward_input() has computed them
  with_pass(micro_batch, [&](Pass& pass) {
    model_.backward_weight(pass, chunk, std::move(work(chunk, micro_batch).deferred), count_block_);
  });
}

Activation TrainStage::allocate_message(int /*chunk*/, int micro_batch, bool /*gradient*/) {
  return hidden_state(model_, store_, groups_, ctx_, batches_.batch(micro_batch));
}

std::vector<int> TrainStage::end_recording() {
  recording_ = false;
  return std::exchange(recorded_blocks_, {});
}

void TrainStage::count_blocks(const std::vector<int>& blocks) const {
  for (const int block : blocks) count_block_(block);
}

Activation EvalStage::forward(int chunk, int micro_batch, Activation x) {
  const Tokens tokens = batches_.tokens(micro_batch);
  Pass pass{ctx_, store_, tokens, &groups_};
  Activation y = model_.forward(pass, chunk, std::move(x), nullptr, Recompute::kNone);
  if (!model_.has_head(chunk)) return y;
  Loss loss = loss_;
  loss.per_token = token_losses_[static_cast<size_t>(micro_batch)];
  model_.loss(pass, std::move(y), loss);
  return {};
}

Activation EvalStage::backward_input(int /*chunk*/, int /*micro_batch*/, Activation /*dy*/) {
  TRIREME_UNREACHABLE("backward of an EvalStage");
}

void EvalStage::backward_weight(int /*chunk*/, int /*micro_batch*/) {
  TRIREME_UNREACHABLE("backward of an EvalStage");
}

Activation EvalStage::allocate_message(int /*chunk*/, int micro_batch, bool /*gradient*/) {
  return hidden_state(model_, store_, groups_, ctx_, batches_.batch(micro_batch));
}

}  // namespace trireme
