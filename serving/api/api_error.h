// Error of a rejected request: its HTTP status, and the body that OpenAI's clients expect.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/error.h"

namespace trireme {

class ApiError : public Error {
 public:
  // param: the invalid field. code: identifier for programs. Either may be empty, which is null in
  // the body.
  ApiError(int status, const std::string& message, std::string param, std::string code)
      : Error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& error_code() const { return code_; }
  // Milliseconds after which a retry may succeed, for 429 and 503; 0: not stated.
  int64_t retry_after_ms() const { return retry_after_ms_; }
  ApiError& retry_after(int64_t ms) {
    retry_after_ms_ = ms;
    return *this;
  }

 private:
  int status_;
  std::string param_, code_;
  int64_t retry_after_ms_ = 0;
};

// Throws ApiError 400: a field has an invalid value.
template <class... Parts>
[[noreturn]] void fail_field(const std::string& param, const Parts&... parts) {
  throw ApiError(400, concat(parts...), param, "invalid_value");
}
// Throws ApiError 501: this server does not support what a field requests.
template <class... Parts>
[[noreturn]] void fail_unavailable(const std::string& param, const Parts&... parts) {
  throw ApiError(501, concat(parts...), param, "not_implemented");
}

// "type" of errors with this status, as named by OpenAI and llama.cpp.
const char* error_type(int status);
// {"error":{"message":...,"type":...,"param":...,"code":...}}. Messages are truncated after 1000
// bytes, invalid UTF-8 is replaced.
std::string error_body(const ApiError& error);
std::string error_body(int status, const std::string& message, const std::string& code);

}  // namespace trireme
