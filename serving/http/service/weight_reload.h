// POST /admin/weights: other weights for the model while requests are answered, one change at a
// time. POST /v1/load_lora_adapter: another adapter, in the same order.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "serving/api/endpoints/weights.h"
#include "serving/engine/replicas.h"
#include "serving/http/server/exchange.h"
#include "serving/http/service/serving_metrics.h"
#include "serving/scheduler/model_weights.h"

namespace trireme {

class WeightReload {
 public:
  // All must outlive this object. path: what is served, as it was named.
  WeightReload(Replicas& engines, ModelWeights& weights, ServingMetrics& metrics, std::string path);
  ~WeightReload();  // waits for what is under way

  // The answer comes when the weights have changed, or are not going to. It goes on where nobody
  // waits for it any more. ApiError 409 while another is under way.
  std::unique_ptr<PendingReply> begin(const WeightsRequest& request);

  // The same for an adapter: `load`, with load_adapter() in it, makes the answer, on a thread of
  // its own.
  std::unique_ptr<PendingReply> begin_adapter(std::function<HttpReply()> load);
  // Into a slot that nobody computes with. ApiError 400 for one that cannot be served, 503 where
  // the engine or a rank fails meanwhile.
  void load_adapter(int32_t slot, const std::string& path);

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
  std::unique_ptr<PendingReply> begin(const char* doing, std::function<HttpReply()> work);
  HttpReply run(const WeightsRequest& request);
  HttpReply change(const State& next, Handover how);
  void use_on_all(Handover how);
  void drop() noexcept;

  Replicas& engines_;
  ModelWeights& weights_;
  ServingMetrics& metrics_;
  mutable std::mutex mutex_;  // of all below
  State state_;
  const char* doing_ = nullptr;  // for people; nullptr: nothing
  std::thread thread_;
};

}  // namespace trireme
