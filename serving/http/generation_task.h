// A completion or a chat on the engine: its sequences go in when it starts and are cancelled with it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "serving/api/generation_reply.h"
#include "serving/engine/engine.h"
#include "serving/http/admission.h"
#include "serving/http/exchange.h"
#include "serving/http/serving_metrics.h"

namespace trireme {

struct GenerationWork {
  // One for each prompt; their choices are in `choices`, n for each.
  std::vector<SequenceRequest> prompts;
  std::vector<std::shared_ptr<const TokenChoice>> choices;
  GenerationReply reply;
  bool stream = false;
  std::unique_ptr<Admission::Place> place;
  std::chrono::steady_clock::time_point arrival;
};

class GenerationTask final : public PendingReply {
 public:
  // Both must outlive this object.
  GenerationTask(Engine& engine, ServingMetrics& metrics, GenerationWork work);
  ~GenerationTask() override;

  void start(std::function<void()> wake) override;
  Part take() override;
  std::string error_event(const ApiError& error) const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Letter {
    size_t choice;
    SequenceEvent event;
    Clock::time_point when;
  };
  struct Mailbox;  // where the engine's thread puts events
  struct Choice {
    SequenceId id = 0;
    bool started = false, ended = false;
    Clock::time_point first_token, last_token;
    int64_t tokens = 0;
  };
  void accept(Letter& letter, Part& part);
  void count_tokens(Choice& choice, const Letter& letter);
  void end(size_t number, const char* reason, Clock::time_point when);
  void fail(const std::string& why, Part& part);

  Engine& engine_;
  ServingMetrics& metrics_;
  GenerationWork work_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<Choice> choices_;
  int64_t prompt_tokens_ = 0;  // not computed yet
  bool begun_ = false;         // an event of the stream has been told
};

}  // namespace trireme
