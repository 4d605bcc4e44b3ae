#include "serving/http/server/exchange.h"

#include <algorithm>

#include "engine/observe/log.h"

namespace trireme {

const std::string* RequestHead::find(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return &value;
  return nullptr;
}

size_t RequestHead::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(
      headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; }));
}

void HttpRequest::forget_body() {
  std::string().swap(body);  // a string that is assigned an empty one keeps its memory
  share.release();
}

ResponseProducer::Part WholeBody::part(int64_t bytes, std::function<std::string()> write) {
  if (!body_ && bytes > kQuickBytes)
    return {.work = [this, write = std::move(write)] { body_ = write(); }};
  ResponseProducer::Part part{.done = true};
  part.whole.emplace().body = body_ ? std::move(*body_) : write();
  return part;
}

HttpResponse response_of(const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = error_body(error)};
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 500 || error.status() == 501 || error.status() == 504)
    response.headers.emplace_back("x-should-retry", "false");
  if (const int64_t ms = error.retry_after_ms(); ms > 0) {
    response.headers.emplace_back("Retry-After", std::to_string((ms + 999) / 1000));
    response.headers.emplace_back("retry-after-ms", std::to_string(ms));
  }
  return response;
}

ApiError api_error_of(const std::exception& error, const std::string& request_id) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  if (dynamic_cast<const InputError*>(&error) != nullptr)
    return {400, error.what(), "", "invalid_value"};
  log_error("request ", request_id, ": ", error.what());
  return {500, concat("internal error of the server; request ", request_id), "", "internal_error"};
}

HttpResponse response_of(const std::exception& error, const std::string& request_id) {
  return response_of(api_error_of(error, request_id));
}

}  // namespace trireme
