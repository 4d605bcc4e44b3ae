// Embedding task of a request: submits its texts to the engine, at most at_a_time of them at once,
// where they share steps with generation. They are cancelled with the request.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serving/engine/replicas.h"
#include "serving/http/server/byte_budget.h"
#include "serving/http/server/exchange.h"
#include "serving/http/service/admission.h"
#include "serving/http/service/mailbox.h"
#include "serving/http/service/serving_metrics.h"

namespace trireme {

struct EmbeddingWork {
  std::vector<SequenceRequest> texts;
  size_t dimensions = 0;   // as for EmbeddingResponse (embedding.h)
  bool normalizes = true;  // likewise
  size_t at_a_time = 1;    // maximum texts in the engine at once, admitted by `ticket`
  HeldBytes held;          // for the response: already set to its estimated size
  // Returns the response body. embeddings: one vector per text, in order; prompt_tokens: of all
  // texts.
  std::function<std::string(const std::vector<std::vector<float>>& embeddings,
                            int64_t prompt_tokens)>
      write_body = {};
  std::unique_ptr<Admission::Ticket> ticket = {};
  std::shared_ptr<const void> lease = {};  // keeps the adapter's slot (served_ids.h)
};

class EmbeddingTask final : public ResponseProducer {
 public:
  // Both must outlive this object, and `metrics` must outlive `engines`.
  EmbeddingTask(Replicas& engines, ServingMetrics& metrics, EmbeddingWork work);
  ~EmbeddingTask() override;

  void start(std::function<void()> wake) override;
  Part take() override;
  std::string error_event(const ApiError& error) const override;

 private:
  struct Results {
    std::vector<std::vector<float>> embeddings;  // by text
    std::vector<bool> ended;                     // by text
    size_t ends = 0;                             // number of ended texts
    Failure error;                               // the first one
    bool may_retry = false;                      // the engine has failed, not the request
  };
  static void put(Mailbox<Results>& mailbox, size_t text, size_t dimensions, bool normalizes,
                  SequenceEvent& event);
  void add_texts(size_t ended);
  Replicas& engines_;
  ServingMetrics& metrics_;
  EmbeddingWork work_;
  int64_t prompt_tokens_ = 0;
  std::shared_ptr<Mailbox<Results>> mailbox_ = std::make_shared<Mailbox<Results>>();
  std::vector<std::vector<float>> embeddings_;  // of all texts, once complete
  WholeBody body_;
  std::vector<SequenceId> ids_;        // of the submitted texts
  std::shared_ptr<WeightsHold> hold_;  // pins one version of the weights for all texts
};

}  // namespace trireme
