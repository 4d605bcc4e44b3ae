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

PendingReply::Part WholeBody::part(int64_t bytes, std::function<std::string()> write) {
  if (!body_ && bytes > kQuickBytes)
    return {.work = [this, write = std::move(write)] { body_ = write(); }};
  PendingReply::Part part{.done = true};
  part.whole.emplace().body = body_ ? std::move(*body_) : write();
  return part;
}

HttpReply reply_of(const ApiError& error) {
  HttpReply reply{.status = error.status(), .body = error_body(error)};
  if (error.status() == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 500 || error.status() == 501 || error.status() == 504)
    reply.headers.emplace_back("x-should-retry", "false");
  if (const int64_t ms = error.retry_after_ms(); ms > 0) {
    reply.headers.emplace_back("Retry-After", std::to_string((ms + 999) / 1000));
    reply.headers.emplace_back("retry-after-ms", std::to_string(ms));
  }
  return reply;
}

ApiError api_error_of(const std::exception& error, const std::string& request_id) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  if (dynamic_cast<const InputError*>(&error) != nullptr)
    return {400, error.what(), "", "invalid_value"};
  log_error("request ", request_id, ": ", error.what());
  return {500, concat("internal error of the server; request ", request_id), "", "internal_error"};
}

HttpReply reply_of(const std::exception& error, const std::string& request_id) {
  return reply_of(api_error_of(error, request_id));
}

}  // namespace trireme
