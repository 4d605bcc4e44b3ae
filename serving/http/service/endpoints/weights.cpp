#include "serving/api/endpoints/weights.h"

#include "serving/http/service/handler.h"

namespace trireme {
namespace {

bool has_reload(const ServiceContext& service) { return service.reload != nullptr; }

HandlerResult replace_weights(ServiceContext& service, HttpRequest& http) {
  HandlerResult result;
  result.pending = service.reload->begin(service.read(parse_weights, http.body));
  return result;
}

HandlerResult served_weights(ServiceContext& service, HttpRequest&) {
  return {{.body = service.reload->state_body()}};
}

}  // namespace

extern const Handler kReplaceWeightsHandler = {kReplaceWeightsEndpoint, replace_weights,
                                               has_reload};
extern const Handler kServedWeightsHandler = {kServedWeightsEndpoint, served_weights, has_reload};

}  // namespace trireme
