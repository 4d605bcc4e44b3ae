#include "serving/api/endpoints/status.h"

#include <string_view>

#include "serving/api/json_writer.h"
#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HttpResponse status_response(const char* status) {
  std::string body;
  JsonWriter(body).begin_object().key("status").string(status).end_object();
  return {.body = std::move(body)};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
                        hex_digit(text[i + 2]) >= 0;
    out +=
        escape ? static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return out;
}

HandlerResult list_models(ServiceContext& service, HttpRequest&) {
  return {{.body = model_list_body(service.models())}};
}

HandlerResult model(ServiceContext& service, HttpRequest& request) {
  const std::string id =
      percent_decoded(std::string_view(request.head.path).substr(sizeof("/v1/models/") - 1));
  for (const ModelCard& card : service.models())
    if (card.id == id) return {{.body = model_body(card)}};
  fail_no_model(id);
}

HandlerResult version(ServiceContext& service, HttpRequest&) {
  std::string body;
  JsonWriter(body).begin_object().key("version").string(service.config.version).end_object();
  return {{.body = std::move(body)}};
}

HandlerResult metrics(ServiceContext& service, HttpRequest&) {
  return {{.body = service.metrics_text(), .content_type = kMetricsEndpoint.content_type}};
}

HandlerResult health(ServiceContext& service, HttpRequest&) {
  service.check_engine();
  return {{.content_type = kHealthEndpoint.content_type}};
}

HandlerResult live(ServiceContext&, HttpRequest&) { return {status_response("live")}; }

HandlerResult ready(ServiceContext& service, HttpRequest&) {
  service.check_engine();
  service.admission.check_open();
  return {status_response("ready")};
}

HandlerResult openapi(ServiceContext& service, HttpRequest&) {
  return {{.document = service.openapi}};
}

}  // namespace

extern const Handler kModelsHandler = {kModelsEndpoint, list_models};
extern const Handler kModelHandler = {kModelEndpoint, model};
extern const Handler kVersionHandler = {kVersionEndpoint, version};
extern const Handler kMetricsHandler = {kMetricsEndpoint, metrics};
extern const Handler kHealthHandler = {kHealthEndpoint, health};
extern const Handler kHealthLiveHandler = {kHealthLiveEndpoint, live};
extern const Handler kHealthReadyHandler = {kHealthReadyEndpoint, ready};
extern const Handler kOpenApiHandler = {kOpenApiEndpoint, openapi};

}  // namespace trireme
