#include "serving/http/service/generation_task.h"

#include <numeric>

#include "engine/observe/log.h"
#include "serving/api/sse_frame.h"
#include "serving/http/service/clock.h"

namespace trireme {
namespace {

constexpr int64_t kGrammarRetryMs = 1000;
constexpr char kFault[] = "internal error of the server";

int64_t bytes_of(const std::vector<OutputToken>& tokens) {
  int64_t bytes = 0;
  for (const OutputToken& token : tokens)
    bytes += std::ssize(token.top) * int64_t{sizeof(TokenLogprob)} + int64_t{sizeof token};
  return bytes;
}

ApiError grammar_error(const GrammarRefusal& refusal, const std::string& param) {
  switch (refusal.kind) {
    case GrammarRefusal::Kind::kShareIsFull:
      return ApiError(429, refusal.message, param, "queue_full").retry_after(kGrammarRetryMs);
    case GrammarRefusal::Kind::kMemoryIsFull:
      return ApiError(503, refusal.message, param, "server_overloaded")
          .retry_after(kGrammarRetryMs);
    case GrammarRefusal::Kind::kInvalid: break;
  }
  return {400, concat(param, ": ", refusal.message), param, "invalid_value"};
}

}  // namespace

ApiError size_error(const HeldBytes& held, const std::string& way_out, const std::string& param) {
  if (held.bytes() <= held.max_bytes())
    return ApiError(503, "the server buffers too many large responses", "", "server_overloaded")
        .retry_after(1000);
  return {400, concat("the response is larger than ", held.max_bytes(), " bytes: ", way_out), param,
          "answer_too_large"};
}

ApiError engine_error(const Failure& failure, bool may_retry) {
  if (failure.cause == FailureCause::kAllForbidden)
    return {400, failure.why, "", "no_token_allowed"};
  if (failure.cause == FailureCause::kNoRuleMemory)
    return ApiError(503, failure.why, "", "server_overloaded").retry_after(kGrammarRetryMs);
  const std::string why = failure.cause == FailureCause::kFault ? kFault : failure.why;
  if (!may_retry) return {500, why, "", "engine_failure"};
  return ApiError(503, why, "", "engine_failure").retry_after(1000);
}

// When the buffer is full, the sequences are cancelled: otherwise the whole text would accumulate
// here for a client that reads more slowly than the model generates.
struct GenerationTask::PendingEvents {
  Replicas& engines;
  HeldBytes held;
  std::vector<ChoiceEvent> events = {};
  std::vector<SequenceId> senders = {};
  bool overflown = false;
  // Result of compiling the grammar; absent: not available yet, or taken already.
  struct Compiled {
    std::shared_ptr<const TextRule> rule;
    GrammarRefusal refusal;
  };
  std::optional<Compiled> compiled = {};

  // Wakes the reader for the first message only: the reader takes all messages at once.
  bool put(size_t choice, SequenceEvent&& event) {
    if (overflown) return false;
    const int64_t bytes =
        int64_t{sizeof(ChoiceEvent)} + bytes_of(event.tokens) + bytes_of(event.prompt);
    if (held.set(held.bytes() + bytes))
      events.push_back({choice, std::move(event), Clock::now()});
    else
      overflow();
    return events.size() == 1 || overflown;
  }
  void overflow() {
    overflown = true;
    events.clear();
    for (const SequenceId id : senders) engines.cancel(id);
  }
  void know(const std::vector<SequenceId>& ids) {
    senders.insert(senders.end(), ids.begin(), ids.end());
    if (overflown) overflow();
  }
};

GenerationTask::GenerationTask(Replicas& engines, ServingMetrics& metrics, GenerationWork work)
    : engines_(engines),
      metrics_(metrics),
      work_(std::move(work)),
      mailbox_(std::make_shared<Mailbox<PendingEvents>>(
          engines, HeldBytes(work_.limits.unread, work_.limits.always, work_.response_budget))),
      choices_(work_.prompts.size() * work_.n),
      held_(work_.limits.whole, work_.limits.always, work_.response_budget) {
  for (const SequenceRequest& prompt : work_.prompts) lengths_.push_back(std::ssize(prompt.prompt));
  prompt_tokens_ = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
}

GenerationTask::~GenerationTask() { leave("abort"); }

void GenerationTask::leave(const char* reason) noexcept {
  try {
    mailbox_->close();
    cancel_all(reason);
  } catch (const std::exception& error) {
    log_error("cannot cancel a request: ", error.what());
  }
}

// Includes choices that no engine has yet because their grammar is being compiled or their prompt
// copied; metrics count those for the first engine. reason: "abort" if the client has left or
// another sequence has failed, "error" if the server has failed to compute them.
void GenerationTask::cancel_all(const char* reason) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].ended) continue;
    if (choices_[i].id != 0) engines_.cancel(choices_[i].id);
    end(i, reason, Clock::now());
  }
}

void GenerationTask::start(std::function<void()> wake) {
  mailbox_->open(wake);
  if (!work_.grammar) {
    enter(nullptr);
    if (entering_) wake();
    return;
  }
  GrammarSource source = std::move(*work_.grammar);
  work_.grammar.reset();
  work_.compiler->compile(
      work_.tenant, std::move(source),
      [mailbox = mailbox_](std::shared_ptr<const TextRule> rule,
                           const GrammarRefusal& refusal) noexcept {
        mailbox->put([&](PendingEvents& pending) {
          pending.compiled = {std::move(rule), refusal};
          return true;
        });
      },
      [mailbox = mailbox_] { return mailbox->is_open(); });
}

// The engine gets a separate copy of the prompt for each choice.
int64_t GenerationTask::bytes_to_copy() const {
  return prompt_tokens_ * static_cast<int64_t>(work_.n * sizeof(int32_t));
}

void GenerationTask::enter(const std::shared_ptr<const TextRule>& rule) {
  if (bytes_to_copy() > kQuickBytes)
    entering_ = rule;
  else
    enter_engine(rule);
}

void GenerationTask::enter_engine(const std::shared_ptr<const TextRule>& rule) {
  const size_t n = work_.n;
  if (!moved_) entered_ = Clock::now();
  // Submitted one after the other: the hold makes them use the same weights.
  const auto hold = work_.prompts.size() > 1 ? std::make_shared<WeightsHold>() : nullptr;
  for (size_t p = 0; p < work_.prompts.size(); ++p) {
    work_.prompts[p].rule = rule;
    const std::vector<SequenceId> ids = engines_.add_siblings(
        work_.prompts[p], n,
        [&](size_t i) {
          return [mailbox = mailbox_, choice = p * n + i](SequenceEvent&& event) {
            mailbox->put(
                [&](PendingEvents& pending) { return pending.put(choice, std::move(event)); });
          };
        },
        hold);
    for (size_t i = 0; i < n; ++i) choices_[p * n + i].id = ids[i];
    mailbox_->look([&](PendingEvents& pending) { pending.know(ids); });
  }
  // Now owned by the engines. A request with one text keeps its prompt until the first event, so
  // that it can move to another replica.
  if (moved_ || choices_.size() > 1 || engines_.size() == 1) work_.prompts = {};
  if (!moved_)
    metrics_of(choices_.front()).request_submitted(work_.requested.n, work_.requested.max_tokens);
}

ResponseProducer::Part GenerationTask::enter_by_worker() {
  return {.work = [this, rule = std::exchange(entering_, {}).value_or(nullptr)] {
    enter_engine(rule);
  }};
}

// True for a single text lost with its replica before it began to run: it did not cause the loss,
// and the client has received nothing of it. With several texts some may have begun.
bool GenerationTask::can_move(const SequenceEvent& event) const {
  const bool waited = event.may_retry && event.begun == Clock::time_point{};
  const bool elsewhere = event.error.cause != FailureCause::kWeightsChange &&
                         event.error.cause != FailureCause::kStopping;
  return waited && elsewhere && !work_.prompts.empty() && !moved_ && engines_.failure().empty();
}

void GenerationTask::take_rule(Part& part) {
  const auto compiled =
      mailbox_->look([](PendingEvents& pending) { return std::exchange(pending.compiled, {}); });
  if (!compiled) return;
  if (compiled->rule != nullptr) return enter(compiled->rule);
  choices_.clear();  // rejected like any other invalid field: no sequence was submitted
  fail(grammar_error(compiled->refusal, work_.grammar_param), part);
}

ResponseProducer::Part GenerationTask::take() {
  Part part;
  take_rule(part);
  if (entering_) return enter_by_worker();
  bool overflown = false;
  const std::vector<ChoiceEvent> events = mailbox_->look([&](PendingEvents& pending) {
    overflown = pending.overflown;
    pending.held.set(0);
    return std::exchange(pending.events, {});
  });
  for (const ChoiceEvent& received : events) {
    if (part.done) break;
    accept(received, part);
    check_size(part);
  }
  if (entering_) return enter_by_worker();
  if (const std::string lost = mailbox_->failure(); !lost.empty() && !part.done)
    fail(engine_error({lost}, false), part, "error");
  if (overflown && !part.done)
    fail(ApiError(408,
                  concat("the client reads its response too slowly: more than ",
                         work_.limits.unread, " unread bytes"),
                  "", "client_too_slow"),
         part);
  check_size(part);
  begun_ = begun_ || !part.events.empty();
  if (part.done || !work_.response.done()) return part;
  if (!work_.stream)
    return body_.part(work_.response.held_bytes(), [this] { return work_.response.body(); });
  part.done = true;
  return part;
}

void GenerationTask::accept(const ChoiceEvent& received, Part& part) {
  Choice& choice = choices_[received.choice];
  if (choice.ended) return;
  const SequenceEvent& event = received.event;
  if (can_move(event)) {
    moved_ = true;
    return enter(work_.prompts.front().rule);
  }
  work_.prompts = {};
  if (event.finish == FinishReason::kError) {
    end(received.choice, "error", received.when);
    return fail_sequence(event, part);
  }
  choice.begun = event.begun;
  if (!std::exchange(choice.started, true) && received.choice % work_.n == 0) {
    const int64_t tokens = lengths_[received.choice / work_.n];
    metrics_of(choice).prompt_computed(tokens, event.cached_prompt);
    work_.ticket->set_prompt_tokens(prompt_tokens_ -= tokens);
  }
  count_tokens(choice, received);
  work_.response.accept(received.choice, event.prompt, event.tokens, event.cached_prompt,
                        event.finish, part.events);
  if (!work_.response.ended(received.choice)) return;
  if (!event.finish) engines_.cancel(choice.id);
  end(received.choice, work_.response.finish_reason(received.choice), received.when);
}

void GenerationTask::count_tokens(Choice& choice, const ChoiceEvent& received) {
  const int64_t tokens = std::ssize(received.event.tokens);
  if (tokens == 0) return;
  EngineMetrics& metrics = metrics_of(choice);
  metrics.generated(tokens);
  if (choice.tokens == 0) {
    choice.first_token = received.when;
    metrics.first_token(seconds_between(work_.arrival, received.when));
  } else {
    metrics.next_token(seconds_between(choice.last_token, received.when));
  }
  choice.last_token = received.when;
  choice.tokens += tokens;
}

void GenerationTask::end(size_t number, const char* reason, Clock::time_point when) {
  Choice& choice = choices_[number];
  choice.ended = true;
  work_.ticket->end_sequence();
  FinishedSequence summary{.reason = reason,
                           .generated = choice.tokens,
                           .seconds = seconds_between(work_.arrival, when)};
  if (choice.started) summary.queue_seconds = seconds_between(entered_, choice.begun);
  if (choice.tokens > 0) {
    summary.decode_seconds = seconds_between(choice.first_token, choice.last_token);
    summary.prefill_seconds = seconds_between(choice.begun, choice.first_token);
    summary.inference_seconds = seconds_between(choice.begun, choice.last_token);
  }
  metrics_of(choice).finished(summary);
  count_prompt(number / work_.n);
}

void GenerationTask::count_prompt(size_t prompt) const {
  int64_t longest = 0;
  for (const Choice& choice : std::span(choices_).subspan(prompt * work_.n, work_.n)) {
    if (!choice.ended) return;
    longest = std::max(longest, choice.tokens);
  }
  metrics_of(choices_[prompt * work_.n]).prompt_finished(longest);
}

EngineMetrics& GenerationTask::metrics_of(const Choice& choice) const {
  return metrics_.of(engines_.replica_of(choice.id));
}

// Ends all other choices too. A client that has received nothing may retry.
void GenerationTask::fail_sequence(const SequenceEvent& event, Part& part) {
  ApiError error = engine_error(event.error, event.may_retry);
  // Status 503 invites a retry, which is wrong once part of the stream is sent.
  const bool streams = work_.stream && (begun_ || !part.events.empty());
  if (streams && error.status() == 503)
    error = ApiError(500, error.what(), error.param(), error.error_code());
  fail(error, part);
}

void GenerationTask::fail(const ApiError& error, Part& part, const char* reason) {
  part.done = true;
  part.failed = work_.stream && (begun_ || !part.events.empty());
  if (part.failed)
    part.events += error_event(error);
  else
    part.whole = response_of(error);
  cancel_all(reason);
}

// Log-probabilities of a long text are many times larger than the text. For a stream the size is
// that of the events to be written now, since the prompt's part (echo, token ids) is repeated for
// each choice.
void GenerationTask::check_size(Part& part) {
  const int64_t bytes = work_.stream ? std::ssize(part.events) : work_.response.held_bytes();
  if (part.done || held_.set(bytes)) return;
  part.events.clear();
  fail(work_.stream
           ? size_error(held_, "use fewer choices at a time", "n")
           : size_error(held_, "set stream to true, or use fewer tokens or log-probabilities",
                        "logprobs"),
       part);
}

std::string GenerationTask::error_event(const ApiError& error) const {
  return sse_frame(error_body(error));
}

}  // namespace trireme
