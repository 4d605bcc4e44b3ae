#include "serving/http/generation_task.h"

#include <mutex>

namespace trireme {
namespace {

constexpr char kFault[] = "a fault of the server";

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

// Its reader is woken when the first letter comes, and told of the others when it looks.
struct GenerationTask::Mailbox {
  std::mutex mutex;
  std::vector<Letter> letters;
  std::function<void()> wake;  // none: it is closed

  void put(size_t choice, SequenceEvent&& event) {
    const std::lock_guard lock(mutex);
    if (!wake) return;
    letters.push_back({choice, std::move(event), Clock::now()});
    if (letters.size() == 1) wake();
  }
  std::vector<Letter> empty() {
    const std::lock_guard lock(mutex);
    return std::exchange(letters, {});
  }
  void set(std::function<void()> its_wake) {
    const std::lock_guard lock(mutex);
    wake = std::move(its_wake);
  }
};

GenerationTask::GenerationTask(Engine& engine, ServingMetrics& metrics, GenerationWork work)
    : engine_(engine),
      metrics_(metrics),
      work_(std::move(work)),
      mailbox_(std::make_shared<Mailbox>()),
      choices_(work_.choices.size()) {
  for (const SequenceRequest& prompt : work_.prompts) prompt_tokens_ += std::ssize(prompt.prompt);
}

GenerationTask::~GenerationTask() {
  mailbox_->set({});
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].id == 0 || choices_[i].ended) continue;
    engine_.cancel(choices_[i].id);
    end(i, "abort", Clock::now());
  }
}

void GenerationTask::start(std::function<void()> wake) {
  mailbox_->set(std::move(wake));
  const size_t n = work_.choices.size() / work_.prompts.size();
  for (size_t p = 0; p < work_.prompts.size(); ++p) {
    const auto first = work_.choices.begin() + static_cast<std::ptrdiff_t>(p * n);
    const std::vector<SequenceId> ids = engine_.add_siblings(
        work_.prompts[p], {first, first + static_cast<std::ptrdiff_t>(n)}, [&](size_t i) {
          return [mailbox = mailbox_, choice = p * n + i](SequenceEvent&& event) {
            mailbox->put(choice, std::move(event));
          };
        });
    for (size_t i = 0; i < n; ++i) choices_[p * n + i].id = ids[i];
  }
}

PendingReply::Part GenerationTask::take() {
  Part part;
  for (Letter& letter : mailbox_->empty()) {
    if (part.done) break;
    accept(letter, part);
  }
  begun_ = begun_ || !part.events.empty();
  if (!part.done && work_.reply.done()) {
    part.done = true;
    if (!work_.stream) part.whole = HttpReply{.body = work_.reply.body()};
  }
  return part;
}

void GenerationTask::accept(Letter& letter, Part& part) {
  Choice& choice = choices_[letter.choice];
  if (choice.ended) return;
  const SequenceEvent& event = letter.event;
  if (event.finish == FinishReason::kError) {
    end(letter.choice, "error", letter.when);
    return fail(event.error, part);
  }
  const size_t n = choices_.size() / work_.prompts.size();
  if (!std::exchange(choice.started, true) && letter.choice % n == 0) {
    const int64_t tokens = std::ssize(work_.prompts[letter.choice / n].prompt);
    metrics_.prompt_computed(tokens, event.cached_prompt);
    work_.place->set_prompt_tokens(prompt_tokens_ -= tokens);
  }
  count_tokens(choice, letter);
  work_.reply.accept(letter.choice, event.prompt, event.tokens, event.cached_prompt, event.finish,
                     part.events);
  if (!work_.reply.ended(letter.choice)) return;
  if (!event.finish) engine_.cancel(choice.id);
  end(letter.choice, work_.reply.finish_reason(letter.choice), letter.when);
}

void GenerationTask::count_tokens(Choice& choice, const Letter& letter) {
  const int64_t tokens = std::ssize(letter.event.tokens);
  if (tokens == 0) return;
  metrics_.generated(tokens);
  if (choice.tokens == 0) {
    choice.first_token = letter.when;
    metrics_.first_token(seconds_between(work_.arrival, letter.when));
  } else {
    metrics_.next_token(seconds_between(choice.last_token, letter.when));
  }
  choice.last_token = letter.when;
  choice.tokens += tokens;
}

void GenerationTask::end(size_t number, const char* reason, Clock::time_point when) {
  Choice& choice = choices_[number];
  choice.ended = true;
  work_.place->end_sequence();
  metrics_.finished(
      {.reason = reason,
       .generated = choice.tokens,
       .seconds = seconds_between(work_.arrival, when),
       .decode_seconds =
           choice.tokens == 0 ? 0 : seconds_between(choice.first_token, choice.last_token)});
}

// Nothing more comes of the others either. Whoever has seen nothing yet may ask again.
void GenerationTask::fail(const std::string& why, Part& part) {
  // What a check inside the program says is for its authors.
  const std::string told = why.find("check failed") == std::string::npos ? why : kFault;
  part.done = true;
  if (work_.stream && (begun_ || !part.events.empty()))
    part.events += error_event(ApiError(500, told, "", "engine_failure"));
  else if (engine_.failure().empty())
    part.whole = reply_of(ApiError(500, told, "", "engine_failure"));
  else
    part.whole = reply_of(ApiError(503, told, "", "engine_failure").retry_after(1000));
}

std::string GenerationTask::error_event(const ApiError& error) const {
  return sse_frame(error_body(error));
}

}  // namespace trireme
