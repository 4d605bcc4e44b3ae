// Generation task of a completion or chat request: compiles its grammar, if any, submits its
// sequences to the engine, and cancels them when the request is cancelled.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "serving/api/generation_response.h"
#include "serving/engine/replicas.h"
#include "serving/http/server/byte_budget.h"
#include "serving/http/server/exchange.h"
#include "serving/http/service/admission.h"
#include "serving/http/service/mailbox.h"
#include "serving/http/service/serving_metrics.h"
#include "serving/structured/grammar_compiler.h"

namespace trireme {

// Limits on approximate bytes buffered for responses.
struct ResponseLimits {
  // Per request: output of the engine that the connection's thread has not read yet, mostly because
  // the client reads a stream too slowly. Above it the request fails with 408.
  int64_t unread = int64_t{4} << 20;
  // Per request: the body of a non-streamed response until it is sent, or events that a stream
  // writes at once. Above it the request fails with 400.
  int64_t whole = int64_t{64} << 20;
  // Per request, of each of these two: the bytes that do not count in the limits below.
  int64_t always = int64_t{64} << 10;
  int64_t all = int64_t{512} << 20;  // of all requests
  // Per API key, within `all`; with at most one key a request may use all.
  int64_t of_a_key = int64_t{256} << 20;
};

// Requested values, for metrics. max_tokens 0: limited only by the context length.
struct RequestedCounts {
  int64_t n = 1, max_tokens = 0;
};

struct GenerationWork {
  std::vector<SequenceRequest> prompts;
  size_t n = 1;  // choices computed for each prompt
  GenerationResponse response;
  RequestedCounts requested = {};
  bool stream = false;
  std::unique_ptr<Admission::Ticket> ticket;
  std::chrono::steady_clock::time_point arrival;
  ResponseLimits limits = {};
  std::shared_ptr<ByteBudget> response_budget;  // budget of the tenant (ServiceContext::responses)
  // Grammar of the completions, and the request's field that sets it. It is compiled before the
  // sequences are submitted.
  std::optional<GrammarSource> grammar = {};
  std::string grammar_param = {};
  std::string tenant = {};                 // HttpRequest::tenant
  GrammarCompiler* compiler = nullptr;     // may be nullptr without a grammar
  std::shared_ptr<const void> lease = {};  // keeps the adapter's slot (served_ids.h)
};

// Error of a response for which held.set() has failed: 400 if it exceeds its own limit, 503 if it
// exceeds the budget of all responses. For 400, way_out: advice to the client; param: the field to
// change.
ApiError size_error(const HeldBytes& held, const std::string& way_out, const std::string& param);
// Error of a failed sequence: 400 if its constraints allow no token; 503, which may be retried, if
// grammars have no memory left or may_retry (the engine has failed, not the request); else 500.
ApiError engine_error(const Failure& failure, bool may_retry);

class GenerationTask final : public ResponseProducer {
 public:
  // Both must outlive this object.
  GenerationTask(Replicas& engines, ServingMetrics& metrics, GenerationWork work);
  ~GenerationTask() override;

  void start(std::function<void()> wake) override;
  Part take() override;
  void failed() noexcept override { leave("error"); }
  std::string error_event(const ApiError& error) const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct ChoiceEvent {
    size_t choice;
    SequenceEvent event;
    Clock::time_point when;
  };
  struct PendingEvents;  // contents of the mailbox
  struct Choice {
    SequenceId id = 0;  // 0: not submitted yet
    bool started = false, ended = false;
    Clock::time_point begun, first_token, last_token;  // begun: its first step
    int64_t tokens = 0;                                // generated
  };
  int64_t bytes_to_copy() const;
  void enter(const std::shared_ptr<const TextRule>& rule);
  void enter_engine(const std::shared_ptr<const TextRule>& rule);
  Part enter_by_worker();
  bool can_move(const SequenceEvent& event) const;
  void take_rule(Part& part);
  void accept(const ChoiceEvent& received, Part& part);
  void check_size(Part& part);
  void count_tokens(Choice& choice, const ChoiceEvent& received);
  void end(size_t number, const char* reason, Clock::time_point when);
  void count_prompt(size_t prompt) const;
  EngineMetrics& metrics_of(const Choice& choice) const;
  void fail_sequence(const SequenceEvent& event, Part& part);
  void fail(const ApiError& error, Part& part, const char* reason = "abort");
  void leave(const char* reason) noexcept;
  void cancel_all(const char* reason);

  Replicas& engines_;
  ServingMetrics& metrics_;
  GenerationWork work_;
  std::shared_ptr<Mailbox<PendingEvents>> mailbox_;
  std::vector<Choice> choices_;
  std::vector<int64_t> lengths_;  // prompt tokens, by prompt
  Clock::time_point entered_;     // time of submission to the engine
  HeldBytes held_;                // of a non-streamed response, or of unsent events
  WholeBody body_;
  // Grammar rule of the sequences that a worker has yet to submit (nullptr: no grammar); nullopt:
  // no sequences to submit.
  std::optional<std::shared_ptr<const TextRule>> entering_;
  int64_t prompt_tokens_ = 0;  // prompt tokens not computed yet
  bool begun_ = false;         // an event of the stream has been sent
  bool moved_ = false;         // resubmitted to another replica
};

}  // namespace trireme
