// Replacement of the model's weights while requests run (POST /admin/weights), and loading of
// adapters (POST /v1/load_lora_adapter). One change at a time.
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
  // All must outlive this object. path: of the served weights, as given by the user.
  WeightReload(Replicas& engines, ModelWeights& weights, ServingMetrics& metrics, std::string path);
  ~WeightReload();  // waits for a running change

  // Starts a change. The response is complete when the weights are replaced or the change has
  // failed. The change continues if the client disconnects. ApiError 409 while another change is
  // running.
  std::unique_ptr<ResponseProducer> begin(const WeightsRequest& request);

  // Same for an adapter: `load` calls load_adapter() and returns the response; it runs on a
  // separate thread. Its exceptions become error responses.
  std::unique_ptr<ResponseProducer> begin_adapter(std::function<HttpResponse()> load);
  // Loads the adapter at `path` into a slot that no sequence uses. ApiError 400 if the adapter
  // cannot be served, 503 if the engine or a rank fails meanwhile.
  void load_adapter(int32_t slot, const std::string& path);

  // Weights that new requests use.
  struct State {
    std::string path;       // as given by the user
    std::string directory;  // of the checkpoint
    int64_t step = 0;       // training step
    int64_t version = 1;    // incremented by each replacement; adapters do not count
  };
  State state() const;
  std::string state_body() const;  // JSON body of the response to GET /admin/weights

 private:
  struct Outcome;  // result of a change, shared with its Response
  class Response;
  std::unique_ptr<ResponseProducer> begin(const char* doing, std::function<HttpResponse()> work);
  HttpResponse run(const WeightsRequest& request);
  HttpResponse change(const State& next, Handover how);
  void use_on_all(Handover how);
  void drop() noexcept;

  Replicas& engines_;
  ModelWeights& weights_;
  ServingMetrics& metrics_;
  mutable std::mutex mutex_;  // guards all below
  State state_;
  const char* doing_ = nullptr;  // phase shown by state_body(); nullptr: no change is running
  std::thread thread_;
};

}  // namespace trireme
