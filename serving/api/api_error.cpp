#include "serving/api/api_error.h"

#include "engine/core/utf8.h"
#include "serving/api/json_writer.h"

namespace trireme {
namespace {

constexpr size_t kMaxMessage = 1000;  // bytes

std::string presentable(std::string message) {
  const bool cut = message.size() > kMaxMessage;
  if (cut) message.resize(kMaxMessage);
  std::string text = take_complete_utf8(message);
  if (cut) text += "...";
  return text;
}

std::string body(int status, const std::string& message, const std::string& param,
                 const std::string& code) {
  std::string out;
  JsonWriter json(out);
  const auto text_or_null = [&](const char* name, const std::string& value) {
    json.key(name);
    if (value.empty())
      json.null();
    else
      json.string(value);
  };
  json.begin_object().key("error").begin_object();
  json.key("message").string(presentable(message));
  json.key("type").string(error_type(status));
  text_or_null("param", param);
  text_or_null("code", code);
  json.end_object().end_object();
  return out;
}

}  // namespace

const char* error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 408: return "timeout_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string error_body(const ApiError& error) {
  return body(error.status(), error.what(), error.param(), error.error_code());
}

std::string error_body(int status, const std::string& message, const std::string& code) {
  return body(status, message, {}, code);
}

}  // namespace trireme
