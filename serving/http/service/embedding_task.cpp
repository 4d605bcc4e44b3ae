#include "serving/http/service/embedding_task.h"

#include <algorithm>
#include <cmath>

#include "engine/observe/log.h"
#include "serving/api/embeddings_response.h"
#include "serving/http/service/generation_task.h"

namespace trireme {

// Stores the result of a text that has ended.
void EmbeddingTask::put(Mailbox<Results>& mailbox, size_t text, size_t dimensions, bool normalizes,
                        SequenceEvent& event) {
  mailbox.put([&](Results& results) {
    std::vector<float> embedding = std::move(event.embedding);
    embedding.resize(std::min(embedding.size(), dimensions));
    if (normalizes) normalize(embedding);
    const bool finite = std::ranges::all_of(embedding, [](float x) { return std::isfinite(x); });
    if (!finite) event.error = {"the model's output is not finite"};
    results.embeddings[text] = std::move(embedding);
    results.ended[text] = true;
    ++results.ends;
    if (results.error.empty()) {
      results.error = std::move(event.error);
      results.may_retry = event.may_retry;
    }
    return true;
  });
}

EmbeddingTask::EmbeddingTask(Replicas& engines, ServingMetrics& metrics, EmbeddingWork work)
    : engines_(engines), metrics_(metrics), work_(std::move(work)) {
  mailbox_->look([&](Results& results) {
    results.embeddings.resize(work_.texts.size());
    results.ended.resize(work_.texts.size());
  });
  for (const SequenceRequest& text : work_.texts) prompt_tokens_ += std::ssize(text.prompt);
  if (work_.texts.size() > 1) hold_ = std::make_shared<WeightsHold>();
}

EmbeddingTask::~EmbeddingTask() {
  try {
    mailbox_->close();
    const std::vector<bool> ended = mailbox_->look([](Results& results) { return results.ended; });
    for (size_t i = 0; i < ids_.size(); ++i)
      if (!ended[i]) engines_.cancel(ids_[i]);
  } catch (const std::exception& error) {
    log_error("cannot cancel an embeddings request: ", error.what());
  }
}

void EmbeddingTask::start(std::function<void()> wake) {
  mailbox_->open(std::move(wake));
  add_texts(0);
}

void EmbeddingTask::add_texts(size_t ended) {
  while (ids_.size() < std::min(work_.texts.size(), ended + work_.at_a_time)) {
    const size_t i = ids_.size();
    const int64_t tokens = std::ssize(work_.texts[i].prompt);
    ids_.push_back(engines_.add(
        std::move(work_.texts[i]),
        [&metrics = metrics_, mailbox = mailbox_, i, tokens, dimensions = work_.dimensions,
         normalizes = work_.normalizes](SequenceEvent&& event) {
          if (!event.finish) return;
          if (event.finish != FinishReason::kError)
            metrics.of(event.replica).prompt_computed(tokens, event.cached_prompt);
          put(*mailbox, i, dimensions, normalizes, event);
        },
        hold_));
  }
}

ResponseProducer::Part EmbeddingTask::take() {
  Part part;
  Failure error{mailbox_->failure()};
  bool may_retry = false;
  size_t ended = 0;
  mailbox_->look([&](Results& results) {
    if (!results.error.empty()) error = results.error;
    may_retry = results.may_retry;
    ended = results.ends;
    if (ended == work_.texts.size() && embeddings_.empty()) embeddings_.swap(results.embeddings);
  });
  if (!error.empty())
    part.whole = response_of(engine_error(error, may_retry));
  else if (ended < work_.texts.size())
    add_texts(ended);
  else
    part = body_.part(work_.held.bytes(),
                      [this] { return work_.write_body(embeddings_, prompt_tokens_); });
  part.done = part.whole.has_value();
  if (part.done || part.work) hold_.reset();
  return part;
}

std::string EmbeddingTask::error_event(const ApiError& error) const { return error_body(error); }

}  // namespace trireme
