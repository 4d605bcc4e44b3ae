#include "serving/http/embedding_task.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "serving/api/embeddings_reply.h"
#include "serving/http/generation_task.h"

namespace trireme {

struct EmbeddingTask::Mailbox {
  explicit Mailbox(ServingMetrics& its_metrics) : metrics(its_metrics) {}

  ServingMetrics& metrics;
  std::mutex mutex;  // of all below
  std::vector<std::vector<float>> embeddings;
  std::vector<bool> ended;
  size_t ends = 0;
  std::string error;
  std::function<void()> wake;  // none: it is closed

  void put(size_t text, int64_t tokens, size_t dimensions, SequenceEvent&& event) {
    if (!event.finish) return;
    if (event.finish != FinishReason::kError) metrics.prompt_computed(tokens, event.cached_prompt);
    std::vector<float> embedding = normalised(event.embedding, dimensions);
    const bool finite = std::ranges::all_of(embedding, [](float x) { return std::isfinite(x); });
    if (!finite) event.error = "the model's output is not finite";
    const std::lock_guard lock(mutex);
    embeddings[text] = std::move(embedding);
    ended[text] = true;
    ++ends;
    if (error.empty()) error = std::move(event.error);
    if (wake) wake();
  }
};

EmbeddingTask::EmbeddingTask(Engine& engine, ServingMetrics& metrics, EmbeddingWork work)
    : engine_(engine), work_(std::move(work)), mailbox_(std::make_shared<Mailbox>(metrics)) {
  mailbox_->embeddings.resize(work_.texts.size());
  mailbox_->ended.resize(work_.texts.size());
  for (const SequenceRequest& text : work_.texts) prompt_tokens_ += std::ssize(text.prompt);
  if (work_.texts.size() > 1) hold_ = std::make_shared<WeightsHold>();
}

EmbeddingTask::~EmbeddingTask() {
  std::vector<bool> ended;
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->wake = {};
    ended = mailbox_->ended;
  }
  for (size_t i = 0; i < ids_.size(); ++i)
    if (!ended[i]) engine_.cancel(ids_[i]);
}

void EmbeddingTask::start(std::function<void()> wake) {
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->wake = std::move(wake);
  }
  add_texts(0);
}

void EmbeddingTask::add_texts(size_t ended) {
  while (ids_.size() < std::min(work_.texts.size(), ended + work_.at_a_time)) {
    const size_t i = ids_.size();
    const int64_t tokens = std::ssize(work_.texts[i].prompt);
    work_.texts[i].hold = hold_;
    ids_.push_back(engine_.add(
        std::move(work_.texts[i]),
        [mailbox = mailbox_, i, tokens, dimensions = work_.dimensions](SequenceEvent&& event) {
          mailbox->put(i, tokens, dimensions, std::move(event));
        }));
  }
}

PendingReply::Part EmbeddingTask::take() {
  Part part;
  std::unique_lock lock(mailbox_->mutex);
  if (!mailbox_->error.empty()) {
    part.whole = reply_of(engine_error(engine_, mailbox_->error));
  } else if (mailbox_->ends == work_.texts.size()) {
    // Nothing is put there any more.
    part = body_.part(work_.held.bytes(), [this] {
      return embeddings_body(work_.model, mailbox_->embeddings, prompt_tokens_, work_.base64);
    });
  } else {
    const size_t ended = mailbox_->ends;
    lock.unlock();  // an engine that has stopped answers at once
    add_texts(ended);
  }
  part.done = part.whole.has_value();
  if (part.done || part.work) hold_.reset();
  return part;
}

std::string EmbeddingTask::error_event(const ApiError& error) const { return error_body(error); }

}  // namespace trireme
