// Beam search task of a completion or chat request (serving/scheduler/beam_search.h). Each round
// submits one sequence per beam to the engine, to generate one token. The engine's prefix cache
// holds the common prefix of the beams. The sequences are cancelled with the request.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "serving/http/service/generation_task.h"
#include "serving/http/service/mailbox.h"
#include "serving/scheduler/beam_search.h"

namespace trireme {

struct BeamWork {
  // max_tokens limits the length of the search's completions. Of sampling_params only
  // prompt_logprobs is used.
  std::vector<SequenceRequest> prompts;
  size_t n = 1;                 // completions returned per prompt
  BeamSearchConfig search;      // its max_tokens is ignored
  GenerationResponse response;  // has n choices per prompt
  RequestedCounts requested = {};
  std::unique_ptr<Admission::Ticket> ticket;
  std::chrono::steady_clock::time_point arrival;
  HeldBytes held;                          // for the searches and the response
  std::shared_ptr<const void> lease = {};  // keeps the adapter's slot (served_ids.h)
};

class BeamTask final : public ResponseProducer {
 public:
  // Both must outlive this object.
  BeamTask(Replicas& engines, ServingMetrics& metrics, BeamWork work);
  ~BeamTask() override;

  void start(std::function<void()> wake) override;
  Part take() override;
  void failed() noexcept override { leave("error"); }
  std::string error_event(const ApiError& error) const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct BeamEvent {
    size_t prompt, beam;
    SequenceEvent event;
  };
  struct PendingEvents {
    std::vector<BeamEvent> events;
    Failure error;           // of a failed sequence
    bool may_retry = false;  // the engine has failed, not the request
  };
  struct Search {
    BeamSearch beams;
    std::vector<SequenceId> ids = {};                       // of this round; 0: it has ended
    std::vector<std::vector<TokenLogprob>> following = {};  // top next tokens, by beam
    size_t open = 0;  // number of sequences of this round that have not ended
    // First sequence of the search (0: none yet); later ones run on its replica, whose prefix cache
    // has the prompt.
    SequenceId first = 0;
    bool reported = false;                           // its end has been counted in the metrics
    std::vector<OutputToken> prompt = {};            // log-probabilities of the prompt
    int64_t cached_prompt = 0;                       // prompt tokens found in the prefix cache
    Clock::time_point begun = {}, first_token = {};  // first step; end of the first round
  };
  void begin_round(size_t number);
  int64_t bytes_of(const std::vector<BeamEvent>& events) const;
  void accept(BeamEvent& received);
  void finish(size_t number);
  void count(size_t choice, const Search& search);
  void leave(const char* reason) noexcept;
  void give_up(const char* reason);
  EngineMetrics& metrics_of(const Search& search) const;

  Replicas& engines_;
  ServingMetrics& metrics_;
  BeamWork work_;
  std::shared_ptr<Mailbox<PendingEvents>> mailbox_ = std::make_shared<Mailbox<PendingEvents>>();
  std::vector<Search> searches_;
  std::vector<int64_t> lengths_;  // prompt tokens, by prompt
  size_t open_ = 0;               // unfinished searches
  int64_t prompt_tokens_ = 0;     // prompt tokens not computed yet
  WholeBody body_;
  // Pins one version of the weights until the last round.
  std::shared_ptr<WeightsHold> hold_ = std::make_shared<WeightsHold>();
  Clock::time_point entered_;  // time of submission of the first rounds to the engine
};

}  // namespace trireme
