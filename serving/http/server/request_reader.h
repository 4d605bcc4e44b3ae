// Requests of HTTP/1.1 from the bytes of a connection (RFC 9112), within limits, stricter than the
// RFC where leniency has been abused: lines end with CRLF, no header is folded, Content-Length is
// there once and not beside Transfer-Encoding, which is "chunked" and nothing else. A target in
// absolute form is read as the path and host that it names.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serving/http/server/byte_budget.h"
#include "serving/http/server/exchange.h"
#include "serving/http/server/limits.h"

namespace trireme {

class RequestReader {
 public:
  enum class State { kHead, kBody, kDone, kRefused };

  // all_bodies: what bodies of all requests may take. The limits outlive this object.
  RequestReader(const HttpLimits& limits, std::shared_ptr<ByteBudget> all_bodies);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // bytes: everything that is there and was not taken. Returns how many were taken, which may be
  // none. Goes no further than the end of the head, and then to the end of the body.
  size_t feed(std::string_view bytes);
  State state() const { return state_; }
  bool begun() const { return begun_; }              // a byte of the request has come
  const RequestHead& head() const { return head_; }  // once state() is beyond kHead
  // The body is read, but not kept.
  void discard_body() {
    keep_body_ = false;
    body_ = {};
    share_.release();
  }
  // When done. The share is what the body has taken of the budget.
  std::string take_body() { return std::move(body_); }
  ByteShare take_share() { return std::move(share_); }
  const ApiError& refusal() const { return *refusal_; }  // when refused

 private:
  class Parser;
  friend class Parser;
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  bool scan(std::string_view bytes);
  bool end_line(size_t length, std::string_view bytes);
  bool to_origin_form();
  void finish_head();
  void refuse(int status, const std::string& message, const char* code);

  const HttpLimits& limits_;
  ByteShare share_;  // of body_
  State state_ = State::kHead;
  bool begun_ = false, chunks_begun_ = false, keep_body_ = true;
  RequestHead head_;
  std::string body_;
  std::unique_ptr<ApiError> refusal_;
  // The head so far: bytes looked at, where the line begins, lines and bytes of headers.
  size_t scanned_ = 0, line_ = 0, lines_ = 0, headers_bytes_ = 0;
  std::unique_ptr<Parser> parser_;
};

}  // namespace trireme
