// POST /admin/weights: other weights for the model while requests are answered, one change at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "serving/api/requests.h"
#include "serving/engine/engine.h"
#include "serving/http/exchange.h"
#include "serving/http/serving_metrics.h"
#include "serving/scheduler/model_weights.h"

namespace trireme {

class WeightReload {
 public:
  // All must outlive this object. path: what is served, as it was named.
  WeightReload(Engine& engine, ModelWeights& weights, ServingMetrics& metrics, std::string path);
  ~WeightReload();  // waits for what is under way

  // The answer comes when the weights have changed, or are not going to. It goes on where nobody waits for it any more.
  // ApiError 409 while another is under way.
  std::unique_ptr<PendingReply> begin(const WeightsRequest& request);

  // Of requests that come now.
  struct State {
    std::string path;       // as it was named
    std::string directory;  // the checkpoint
    int64_t step = 0;
    int64_t version = 1;  // counts changes
  };
  State state() const;
  std::string state_body() const;  // GET

 private:
  struct Outcome;  // what the reply waits for
  class Reply;
  void run(const WeightsRequest& request, Outcome& outcome);
  HttpReply change(const State& next, Handover how);

  Engine& engine_;
  ModelWeights& weights_;
  ServingMetrics& metrics_;
  mutable std::mutex mutex_;  // of all below
  State state_;
  const char* doing_ = nullptr;  // for people; nullptr: nothing
  std::thread thread_;
};

}  // namespace trireme
