#include "serving/api/endpoints/lora_adapters.h"

#include <ctime>

#include "engine/observe/log.h"
#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HttpResponse adapter_success(const Endpoint& endpoint, const char* what, const std::string& name) {
  return {.body = concat("Success: LoRA adapter '", name, "' ", what, " successfully."),
          .content_type = endpoint.content_type};
}

bool has_adapter_slots(const ServiceContext& service) {
  return service.reload != nullptr && service.ids.slots() > 0;
}

HandlerResult load_adapter(ServiceContext& service, HttpRequest& http) {
  const AdapterRequest request = service.read(parse_load_adapter, http.body);
  HandlerResult result;
  result.pending = service.reload->begin_adapter([&service, request] {
    const int32_t slot = service.ids.free_slot(request.name);
    service.reload->load_adapter(slot, request.path);
    service.ids.add({.id = request.name,
                     .created = std::time(nullptr),
                     .max_model_len = service.config.max_model_len,
                     .root = request.path,
                     .parent = service.config.models.front().id,
                     .adapter = slot});
    log_info("adapter ", request.path, " is served as ", request.name);
    return adapter_success(kLoadAdapterEndpoint, "added", request.name);
  });
  return result;
}

HandlerResult unload_adapter(ServiceContext& service, HttpRequest& http) {
  const AdapterRequest request = service.read(parse_unload_adapter, http.body);
  service.ids.remove(request.name);
  log_info("adapter ", request.name, " is no longer served");
  return {adapter_success(kUnloadAdapterEndpoint, "removed", request.name)};
}

}  // namespace

extern const Handler kLoadAdapterHandler = {kLoadAdapterEndpoint, load_adapter, has_adapter_slots};
extern const Handler kUnloadAdapterHandler = {kUnloadAdapterEndpoint, unload_adapter,
                                              has_adapter_slots};

}  // namespace trireme
