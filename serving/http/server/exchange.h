// HTTP request and response types, independent of sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serving/api/api_error.h"
#include "serving/http/server/byte_budget.h"

namespace trireme {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct RequestHead {
  // target: PATH or PATH?QUERY, not percent-decoded; path, query: its parts.
  std::string method, target, path, query;
  int version = 11;        // HTTP version times ten
  Headers headers;         // names in lower case
  bool keep_alive = true;  // the client lets the connection stay open after the response
  std::optional<uint64_t> content_length;  // nullopt: chunked, or no Content-Length header
  bool chunked = false;

  // Value of the first header of that name; nullptr: absent.
  const std::string* find(std::string_view lower_case_name) const;
  size_t count(std::string_view lower_case_name) const;  // number of headers of that name
};

struct HttpRequest {
  RequestHead head;
  std::string body;
  ByteShare share;     // bytes of the body, in the budget of all bodies
  std::string id;      // request_id_of() (head_checks.h)
  std::string tenant;  // name of the API key (ApiKeys::check), not its text; may be ""
  std::chrono::steady_clock::time_point arrival;     // when the head was complete
  std::optional<std::chrono::milliseconds> timeout;  // X-Request-Timeout-Ms, after `arrival`

  // Frees the body's memory, then returns its share.
  void forget_body();
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  // Replaces `body`: one document that all connections share, however slowly they read it.
  std::shared_ptr<const std::string> document = {};
  std::string content_type = "application/json";
  Headers headers = {};
  std::shared_ptr<const void> held = {};  // budget share of `body`, kept until it is sent

  const std::string& content() const { return document != nullptr ? *document : body; }
};

// Response to an error: its body, and the headers that belong to its status and to its retry time.
HttpResponse response_of(const ApiError& error);
// Error that the client gets for an exception: ApiError unchanged, InputError as 400. Anything else
// is 500 without details, which are logged with the id of the request.
ApiError api_error_of(const std::exception& error, const std::string& request_id);
HttpResponse response_of(const std::exception& error, const std::string& request_id);

// Maximum bytes that a response may read, copy or write on a thread that serves connections. Above
// it, use ResponseProducer::Part::work.
inline constexpr int64_t kQuickBytes = 64 << 10;

// Producer of a response that takes a while: a stream of events, or one body at the end. One thread
// at a time calls it.
class ResponseProducer {
 public:
  virtual ~ResponseProducer() = default;  // cancels the computation if it is incomplete

  // Called once, before take(). The producer calls `wake`, from any thread, when take() may have
  // something new, and never after this object's destruction. An exception of start() or take()
  // ends the response with an error.
  virtual void start(std::function<void()> wake) = 0;

  struct Part {
    std::optional<HttpResponse> whole = {};  // complete response; nothing may precede it
    std::string events = {};                 // next frames of a stream (sse_frame.h); may be empty
    bool done = false;                       // last part of the response
    bool failed = false;  // `events` end with an error: the connection is closed after them
    // Slow work; then all fields above are unset. Only before the first event of a stream. A worker
    // runs it, or the connection's thread if the workers' queue is full. Then take() is called
    // again, or this object is destroyed. An exception of the work ends the response with an error.
    std::function<void()> work = {};
  };
  virtual Part take() = 0;
  // Reports that an exception of start(), take() or their work has ended the response, for metrics.
  // After it only error_event() is called.
  virtual void failed() noexcept {}
  // Frame of the event that ends a stream after an error.
  virtual std::string error_event(const ApiError& error) const = 0;
};

// Body of a non-streamed response, written by a worker if it is large.
class WholeBody {
 public:
  // Returns the last part if the body has at most kQuickBytes or is already written, else the work
  // that writes it; that work refers to this object. bytes: estimated size of the body.
  ResponseProducer::Part part(int64_t bytes, std::function<std::string()> write);

 private:
  std::optional<std::string> body_;
};

struct HandlerResult {
  HttpResponse response = {};
  std::unique_ptr<ResponseProducer> pending = {};  // if set, replaces `response`
};

}  // namespace trireme
