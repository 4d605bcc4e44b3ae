// What a request is refused with: a status of HTTP and the body that OpenAI's clients read.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/error.h"

namespace trireme {

class ApiError : public Error {
 public:
  // param: the field at fault, if there is one. code: a word for programs; both may be empty
  // (null).
  ApiError(int status, const std::string& message, std::string param, std::string code)
      : Error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& error_code() const { return code_; }
  // When it may be tried again, of 429 and 503; 0: not said.
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

// 400, a value that cannot be used.
template <class... Parts>
[[noreturn]] void fail_field(const std::string& param, const Parts&... parts) {
  throw ApiError(400, concat(parts...), param, "invalid_value");
}
// 501, something this server does not do.
template <class... Parts>
[[noreturn]] void fail_unavailable(const std::string& param, const Parts&... parts) {
  throw ApiError(501, concat(parts...), param, "not_implemented");
}

// The "type" of errors with this status, as OpenAI and llama.cpp name them.
const char* error_type(int status);
// {"error":{"message":...,"type":...,"param":...,"code":...}}. A long message is cut, bytes that
// are no UTF-8 are replaced.
std::string error_body(const ApiError& error);
std::string error_body(int status, const std::string& message, const std::string& code);

}  // namespace trireme
