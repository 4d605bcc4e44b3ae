#include "serving/http/service/weight_reload.h"

#include "engine/core/thread_name.h"
#include "engine/observe/log.h"
#include "serving/api/json_writer.h"

namespace trireme {
namespace {

Handover handover(const std::string& mode) {
  if (mode == "abort") return Handover::kAbort;
  return mode == "keep" ? Handover::kKeep : Handover::kWait;
}

std::string body_of(const WeightReload::State& state, const char* doing) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("model").string(state.directory);
  json.key("step").integer(state.step).key("version").integer(state.version).key("replacing");
  if (doing == nullptr)
    json.null();
  else
    json.string(doing);
  json.end_object();
  return out;
}

}  // namespace

struct WeightReload::Outcome {
  std::mutex mutex;
  std::optional<HttpResponse> response;
  std::function<void()> wake;  // empty: nobody waits

  void put(HttpResponse made) {
    const std::lock_guard lock(mutex);
    response = std::move(made);
    if (wake) wake();
  }
};

class WeightReload::Response final : public ResponseProducer {
 public:
  explicit Response(std::shared_ptr<Outcome> outcome) : outcome_(std::move(outcome)) {}
  ~Response() override {
    const std::lock_guard lock(outcome_->mutex);
    outcome_->wake = {};
  }
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(outcome_->mutex);
    outcome_->wake = std::move(wake);
    if (outcome_->response) outcome_->wake();
  }
  Part take() override {
    const std::lock_guard lock(outcome_->mutex);
    Part part;
    std::optional<HttpResponse>& response = outcome_->response;
    part.done = response.has_value();
    if (response) part.whole.emplace(std::move(*response));
    response.reset();
    return part;
  }
  std::string error_event(const ApiError& error) const override { return error_body(error); }

 private:
  std::shared_ptr<Outcome> outcome_;
};

WeightReload::WeightReload(Replicas& engines, ModelWeights& weights, ServingMetrics& metrics,
                           std::string path)
    : engines_(engines), weights_(weights), metrics_(metrics) {
  const ModelWeights::Checkpoint now = weights.served();
  state_ = {.path = std::move(path), .directory = now.directory, .step = now.step};
  metrics_.weights(state_.version);
}

WeightReload::~WeightReload() {
  if (thread_.joinable()) thread_.join();
}

WeightReload::State WeightReload::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::string WeightReload::state_body() const {
  const std::lock_guard lock(mutex_);
  return body_of(state_, doing_);
}

std::unique_ptr<ResponseProducer> WeightReload::begin(const char* doing,
                                                      std::function<HttpResponse()> work) {
  const std::lock_guard lock(mutex_);
  if (doing_ != nullptr)
    throw ApiError(409, "the weights are already being replaced", "", "reload_in_progress");
  if (thread_.joinable()) thread_.join();  // short: it has reset doing_
  const auto outcome = std::make_shared<Outcome>();
  auto response = std::make_unique<Response>(outcome);
  thread_ = std::thread([this, work = std::move(work), outcome] {
    name_thread("loader");
    HttpResponse made = work();
    {
      const std::lock_guard held(mutex_);
      doing_ = nullptr;
    }
    outcome->put(std::move(made));
  });
  doing_ = doing;
  return response;
}

std::unique_ptr<ResponseProducer> WeightReload::begin(const WeightsRequest& request) {
  return begin("loading", [this, request] { return run(request); });
}

std::unique_ptr<ResponseProducer> WeightReload::begin_adapter(std::function<HttpResponse()> load) {
  return begin("loading an adapter", [load = std::move(load)] {
    try {
      return load();
    } catch (const ApiError& error) {
      return response_of(error);
    } catch (const std::exception& error) {
      log_error("cannot load an adapter: ", error.what());
      return response_of(ApiError(500, "the adapter could not be loaded", "", "internal_error"));
    }
  });
}

void WeightReload::load_adapter(int32_t slot, const std::string& path) {
  const auto fail_for_now = [&](const std::exception& error) {
    drop();
    log_error("adapter ", path, " could not be loaded: ", error.what());
    throw ApiError(503, "the adapter cannot be loaded now; the server's log has the reason", "",
                   "engine_failure")
        .retry_after(1000);
  };
  try {
    weights_.stage_adapter(slot, path);
  } catch (const InputError& error) {
    drop();
    fail_field("lora_path", error.what());
  } catch (const std::exception& error) {
    fail_for_now(error);
  }
  try {
    use_on_all(Handover::kBeside);
  } catch (const std::exception& error) {
    fail_for_now(error);
  }
  drop();
}

// A replica lost during the call restarts with the staged weights if commit() returned true; then
// the change succeeds all the same.
void WeightReload::use_on_all(Handover how) {
  const bool comes_back = weights_.commit();
  try {
    engines_.change_weights(how, [this](size_t replica) { weights_.use(replica); });
  } catch (const std::exception& error) {
    if (!comes_back) throw;
    log_warning(
        "a replica failed while switching to the new weights and will load them when it restarts: ",
        error.what());
  }
}

void WeightReload::drop() noexcept {
  try {
    weights_.drop();
  } catch (const std::exception& error) {  // the engine will fail in the same way
    log_warning("cannot release staged weights: ", error.what());
  }
}

HttpResponse WeightReload::run(const WeightsRequest& request) {
  HttpResponse response;
  const char* counted = "failed";
  try {
    State next = state();
    if (!request.model.empty()) next.path = request.model;
    log_info("loading weights from ", next.path);
    const ModelWeights::Checkpoint staged = weights_.stage(next.path);
    next.directory = staged.directory;
    next.step = staged.step;
    ++next.version;
    response = change(next, handover(request.mode));
    counted = "done";
  } catch (const InputError& error) {
    counted = "refused";
    log_warning("cannot replace the weights: ", error.what());
    response = response_of(ApiError(400, error.what(), "model", "invalid_value"));
  } catch (const std::exception& error) {
    log_error("cannot replace the weights: ", error.what());
    response =
        response_of(ApiError(503, "the engine has failed", "", "engine_failure").retry_after(1000));
  }
  metrics_.weights_replaced(counted);
  return response;
}

HttpResponse WeightReload::change(const State& next, Handover how) {
  State before;
  {
    const std::lock_guard lock(mutex_);
    doing_ = "waiting";
    before = std::exchange(state_, next);
  }
  std::exception_ptr failed;
  try {
    use_on_all(how);
  } catch (...) {
    failed = std::current_exception();
    const std::lock_guard lock(mutex_);
    state_ = before;
  }
  drop();
  if (failed) std::rethrow_exception(failed);
  metrics_.weights(next.version);
  log_info("serving weights from ", next.directory, ", version ", next.version);
  return {.body = body_of(next, nullptr)};
}

}  // namespace trireme
