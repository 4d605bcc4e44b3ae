#include "serving/http/service/beam_task.h"

#include <numeric>

#include "engine/observe/log.h"
#include "serving/http/service/clock.h"

namespace trireme {

BeamTask::BeamTask(Replicas& engines, ServingMetrics& metrics, BeamWork work)
    : engines_(engines), metrics_(metrics), work_(std::move(work)), open_(work_.prompts.size()) {
  for (const SequenceRequest& prompt : work_.prompts) {
    BeamSearchConfig config = work_.search;
    config.max_tokens = prompt.max_tokens;
    searches_.push_back({.beams = BeamSearch(std::move(config))});
    lengths_.push_back(std::ssize(prompt.prompt));
  }
  prompt_tokens_ = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
}

BeamTask::~BeamTask() { leave("abort"); }

void BeamTask::leave(const char* reason) noexcept {
  try {
    mailbox_->close();
    give_up(reason);
  } catch (const std::exception& error) {
    log_error("cannot cancel a beam search: ", error.what());
  }
}

// Cancels the unfinished searches and counts them as ended for `reason`.
void BeamTask::give_up(const char* reason) {
  const Clock::time_point now = Clock::now();
  for (Search& search : searches_) {
    for (SequenceId& id : search.ids)
      if (const SequenceId running = std::exchange(id, 0); running != 0) engines_.cancel(running);
    if (std::exchange(search.reported, true)) continue;
    for (size_t i = 0; i < work_.n; ++i)
      metrics_of(search).finished(
          {.reason = reason, .seconds = seconds_between(work_.arrival, now)});
    metrics_of(search).prompt_finished(0);
  }
}

void BeamTask::start(std::function<void()> wake) {
  mailbox_->open(std::move(wake));
  entered_ = Clock::now();
  for (size_t p = 0; p < searches_.size(); ++p) begin_round(p);
  metrics_of(searches_.front()).request_submitted(work_.requested.n, work_.requested.max_tokens);
}

void BeamTask::begin_round(size_t number) {
  Search& search = searches_[number];
  const SequenceRequest& prompt = work_.prompts[number];
  auto params = std::make_shared<SamplingParams>();
  params->sampling.temperature = 0;
  params->top_logprobs = static_cast<int32_t>(search.beams.candidates());
  if (search.beams.rounds() == 0) params->prompt_logprobs = prompt.sampling_params->prompt_logprobs;
  search.open = search.beams.beams();
  search.following.assign(search.open, {});
  search.ids.assign(search.open, 0);
  for (size_t b = 0; b < search.open; ++b) {
    SequenceRequest sequence = prompt;
    const std::vector<int32_t> tokens = search.beams.tokens(b);
    sequence.prompt.insert(sequence.prompt.end(), tokens.begin(), tokens.end());
    sequence.sampling_params = params;
    sequence.max_tokens = 1;
    search.ids[b] = engines_.add(
        std::move(sequence),
        [mailbox = mailbox_, number, b](SequenceEvent&& event) {
          mailbox->put([&](PendingEvents& pending) {
            if (event.finish == FinishReason::kError) {
              pending.error = event.error;
              pending.may_retry = event.may_retry;
            } else {
              pending.events.push_back({number, b, std::move(event)});
            }
            return true;
          });
        },
        hold_, search.first);
    if (search.first == 0) search.first = search.ids[b];
  }
}

ResponseProducer::Part BeamTask::take() {
  Part part;
  std::vector<BeamEvent> events;
  Failure error{mailbox_->failure()};
  bool may_retry = false;
  mailbox_->look([&](PendingEvents& pending) {
    events.swap(pending.events);
    if (!pending.error.empty()) error = pending.error;
    may_retry = pending.may_retry;
  });
  if (error.empty() && bytes_of(events) > kQuickBytes) {
    part.work = [this, events = std::move(events)]() mutable {
      for (BeamEvent& received : events) accept(received);
    };
    return part;
  }
  for (BeamEvent& received : events) accept(received);
  int64_t bytes = work_.response.held_bytes();
  for (const Search& search : searches_) bytes += search.beams.bytes();
  if (!error.empty())
    part.whole = response_of(engine_error(error, may_retry));
  else if (!work_.held.set(bytes))
    part.whole =
        response_of(size_error(work_.held, "use fewer beams, tokens or log-probabilities", "n"));
  else if (open_ == 0)
    part = body_.part(bytes, [this] { return work_.response.body(); });
  part.done = part.whole.has_value();
  if (part.done || part.work) {
    give_up("error");
    hold_.reset();
  }
  return part;
}

// Approximate bytes that the next rounds copy and sort: the sequence of each beam has the whole
// prompt.
int64_t BeamTask::bytes_of(const std::vector<BeamEvent>& events) const {
  int64_t bytes = 0;
  for (const BeamEvent& received : events) {
    const BeamSearch& beams = searches_[received.prompt].beams;
    bytes += (lengths_[received.prompt] + beams.rounds()) * int64_t{sizeof(int32_t)} +
             beams.candidates() * int64_t{sizeof(TokenLogprob)};
  }
  return bytes;
}

void BeamTask::accept(BeamEvent& received) {
  Search& search = searches_[received.prompt];
  SequenceEvent& event = received.event;
  if (search.beams.rounds() == 0) {
    search.prompt.insert(search.prompt.end(), event.prompt.begin(), event.prompt.end());
    search.cached_prompt = event.cached_prompt;
    search.begun = event.begun;
  }
  for (OutputToken& token : event.tokens) search.following[received.beam] = std::move(token.top);
  if (!event.finish) return;
  search.ids[received.beam] = 0;
  if (--search.open > 0) return;
  if (search.beams.rounds() == 0) {
    search.first_token = Clock::now();
    EngineMetrics& metrics = metrics_of(search);
    metrics.prompt_computed(lengths_[received.prompt], search.cached_prompt);
    metrics.first_token(seconds_between(work_.arrival, search.first_token));
    work_.ticket->set_prompt_tokens(prompt_tokens_ -= lengths_[received.prompt]);
  }
  search.beams.advance(search.following);
  if (search.beams.done())
    finish(received.prompt);
  else
    begin_round(received.prompt);
}

void BeamTask::finish(size_t number) {
  Search& search = searches_[number];
  search.reported = true;
  --open_;
  std::vector<BeamSearch::Completion> texts = search.beams.best(work_.n);
  // If the vocabulary is smaller than the beams, there are fewer texts.
  texts.resize(work_.n);
  int64_t longest = 0;
  for (size_t i = 0; i < work_.n; ++i) {
    const size_t choice = number * work_.n + i;
    std::string no_frames;
    work_.response.accept(choice, search.prompt, texts[i].tokens, search.cached_prompt,
                          texts[i].ended ? FinishReason::kStop : FinishReason::kLength, no_frames);
    longest = std::max(longest, std::ssize(texts[i].tokens));
    metrics_of(search).generated(std::ssize(texts[i].tokens));
    count(choice, search);
  }
  metrics_of(search).prompt_finished(longest);
}

void BeamTask::count(size_t choice, const Search& search) {
  const Clock::time_point now = Clock::now();
  metrics_of(search).finished({.reason = work_.response.finish_reason(choice),
                               .generated = work_.response.completion_tokens(choice),
                               .seconds = seconds_between(work_.arrival, now),
                               .decode_seconds = seconds_between(search.first_token, now),
                               .queue_seconds = seconds_between(entered_, search.begun),
                               .prefill_seconds = seconds_between(search.begun, search.first_token),
                               .inference_seconds = seconds_between(search.begun, now)});
}

EngineMetrics& BeamTask::metrics_of(const Search& search) const {
  return metrics_.of(engines_.replica_of(search.first));
}

std::string BeamTask::error_event(const ApiError& error) const { return error_body(error); }

}  // namespace trireme
