// What an admin does with Service's weights and adapters.
#include <ctime>

#include "engine/observe/log.h"
#include "serving/api/field_lists.h"
#include "serving/http/service.h"

namespace trireme {
namespace {

HttpReply success(const char* what, const std::string& name) {
  return {.body = concat("Success: LoRA adapter '", name, "' ", what, " successfully."),
          .content_type = "text/plain; charset=utf-8"};
}

}  // namespace

void Service::add_weights_routes(Routes& routes) {
  routes.add({.method = "POST",
              .path = path_of(Endpoint::kWeights),
              .access = Access::kAdmin,
              .handle = [this](HttpRequest& http) {
                const WeightsRequest request = parse_weights(http.body, config_.requests);
                mention_unknown(request.unknown);
                HttpAnswer answer;
                answer.pending = reload_->begin(request);
                return answer;
              }});
  routes.add(
      {.method = "GET",
       .path = path_of(Endpoint::kWeights),
       .access = Access::kAdmin,
       .handle = [this](HttpRequest&) { return HttpAnswer{{.body = reload_->state_body()}}; },
       .is_quick = true});
  if (ids_.slots() == 0) return;
  routes.add({.method = "POST",
              .path = path_of(Endpoint::kLoadAdapter),
              .access = Access::kAdmin,
              .handle = [this](HttpRequest& http) { return load_adapter(http); }});
  routes.add({.method = "POST",
              .path = path_of(Endpoint::kUnloadAdapter),
              .access = Access::kAdmin,
              .handle = [this](HttpRequest& http) { return unload_adapter(http); }});
}

HttpAnswer Service::load_adapter(HttpRequest& http) {
  const AdapterRequest request = parse_load_adapter(http.body, config_.requests);
  mention_unknown(request.unknown);
  HttpAnswer answer;
  answer.pending = reload_->begin_adapter([this, request] {
    const int32_t slot = ids_.free_slot(request.name);
    reload_->load_adapter(slot, request.path);
    ids_.add({.id = request.name,
              .created = std::time(nullptr),
              .max_model_len = config_.max_model_len,
              .root = request.path,
              .parent = config_.models.front().id,
              .adapter = slot});
    log_info("adapter ", request.path, " is served as ", request.name);
    return success("added", request.name);
  });
  return answer;
}

HttpAnswer Service::unload_adapter(HttpRequest& http) {
  const AdapterRequest request = parse_unload_adapter(http.body, config_.requests);
  mention_unknown(request.unknown);
  ids_.remove(request.name);
  log_info("adapter ", request.name, " is not served any more");
  return {success("removed", request.name)};
}

}  // namespace trireme
