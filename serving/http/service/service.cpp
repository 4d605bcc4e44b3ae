#include "serving/http/service/service.h"

#include <string_view>

#include "serving/http/service/handler.h"

namespace trireme {
namespace {

Route route_of(ServiceContext& service, const Handler& handler) {
  const Endpoint& endpoint = handler.endpoint;
  Route route{.method = endpoint.method,
              .path = endpoint.path,
              .access = endpoint.access,
              .handle = [&service, handle = handler.handle](
                            HttpRequest& request) { return handle(service, request); },
              // All of these only look something up.
              .is_quick = endpoint.method == std::string_view("GET")};
  if (endpoint.is_admitted)
    route.admit = [&service](const RequestHead&, const std::string& tenant) {
      service.check_engine();
      service.admission.check(tenant);
    };
  return route;
}

}  // namespace

Routes Service::routes() {
  Routes routes;
  for (const Handler* handler : handlers())
    if (handler->is_offered == nullptr || handler->is_offered(context_))
      routes.add(route_of(context_, *handler));
  return routes;
}

void Service::count(const RequestSummary& summary) {
  // Clients choose the method: unknown ones would create an unbounded number of series.
  const bool usual =
      summary.method == "GET" || summary.method == "POST" || summary.method == "HEAD";
  context_.metrics.http_request(summary.handler, usual ? summary.method : "other", summary.status,
                                summary.seconds, summary.body_bytes);
}

}  // namespace trireme
