// Incremental parser of HTTP/1.1 requests (RFC 9112), with limits. It is stricter than the RFC
// where leniency enables attacks: lines must end with CRLF; headers must not be folded;
// Content-Length must occur at most once, and not together with Transfer-Encoding, which must be
// "chunked". Content-Type, Authorization and X-Request-Timeout-Ms must not be repeated either. A
// target in absolute form ("http://HOST/PATH?QUERY") is converted to "/PATH?QUERY" and the host.
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
  // kHead, kBody: this part is not complete yet. kDone: the request is. kRefused: refusal() has the
  // reason.
  enum class State { kHead, kBody, kDone, kRefused };

  // all_bodies: budget of all requests' bodies. The limits must outlive this object.
  RequestReader(const HttpLimits& limits, std::shared_ptr<ByteBudget> all_bodies);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Parses `bytes`, all received bytes that are not consumed yet. Returns the number consumed,
  // possibly 0: a head is consumed as a whole. Stops at the end of the head, then at the end of the
  // body. Consumes nothing in kDone and kRefused.
  size_t feed(std::string_view bytes);
  State state() const { return state_; }
  bool begun() const { return begun_; }  // at least one byte of the request has arrived
  // Complete once state() is past kHead; for kRefused possibly empty or incomplete.
  const RequestHead& head() const { return head_; }
  // Drops the body: its rest is parsed, but not stored.
  void discard_body() {
    keep_body_ = false;
    body_ = {};
    share_.release();
  }
  // For kDone. The share holds the body's bytes in the budget.
  std::string take_body() { return std::move(body_); }
  ByteShare take_share() { return std::move(share_); }
  const ApiError& refusal() const { return *refusal_; }  // for kRefused

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
  ByteShare share_;  // budget share of body_
  State state_ = State::kHead;
  bool begun_ = false, chunks_begun_ = false, keep_body_ = true;
  RequestHead head_;
  std::string body_;
  std::unique_ptr<ApiError> refusal_;
  // Scanner of the head: bytes scanned, start of the current line, count of lines, bytes of
  // headers.
  size_t scanned_ = 0, line_ = 0, lines_ = 0, headers_bytes_ = 0;
  std::unique_ptr<Parser> parser_;
};

}  // namespace trireme
