// A completion or a chat by beam search (serving/scheduler/beam_search.h): each round of it is
// sequences of one token for the engine, which finds what they have in common in its prefix cache.
// They are cancelled with the request.
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
  std::vector<SequenceRequest>
      prompts;              // their choice: what is told of the prompts; max_tokens: of the search
  size_t n = 1;             // texts told of each
  BeamSearchConfig search;  // but max_tokens
  GenerationReply reply;    // of n choices
  AskedFor asked = {};
  std::unique_ptr<Admission::Place> place;
  std::chrono::steady_clock::time_point arrival;
  HeldBytes held;                          // for the searches and the answer
  std::shared_ptr<const void> lease = {};  // of the adapter's slot (served_ids.h)
};

class BeamTask final : public PendingReply {
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
  struct Letter {
    size_t prompt, beam;
    SequenceEvent event;
  };
  struct Arrived {
    std::vector<Letter> letters;
    Failure error;           // of a sequence
    bool of_engine = false;  // the error
  };
  struct Search {
    BeamSearch beams;
    std::vector<SequenceId> ids = {};                       // of this round; 0: it has ended
    std::vector<std::vector<TokenLogprob>> following = {};  // of it
    size_t open = 0;                                        // of them have not ended
    SequenceId first = 0;  // of all: where it was computed the others are, who find it in the cache
    bool told = false;     // its texts are in the reply
    std::vector<ChosenToken> prompt = {};  // what is told of it
    int64_t cached_prompt = 0;
    Clock::time_point begun = {}, first_token = {};
  };
  void begin_round(size_t number);
  int64_t bytes_of(const std::vector<Letter>& letters) const;
  void accept(Letter& letter);
  void finish(size_t number);
  void count(size_t choice, const Search& search);
  void leave(const char* reason) noexcept;
  void give_up(const char* reason);
  EngineMetrics& metrics_of(const Search& search) const;

  Replicas& engines_;
  ServingMetrics& metrics_;
  BeamWork work_;
  std::shared_ptr<Mailbox<Arrived>> mailbox_ = std::make_shared<Mailbox<Arrived>>();
  std::vector<Search> searches_;
  std::vector<int64_t> lengths_;  // of the prompts
  size_t open_ = 0;               // searches that go on
  int64_t prompt_tokens_ = 0;     // not computed yet
  WholeBody body_;
  std::shared_ptr<WeightsHold> hold_ = std::make_shared<WeightsHold>();  // while rounds may come
  Clock::time_point entered_;                                            // the engine
};

}  // namespace trireme
