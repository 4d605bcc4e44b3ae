// A request and its answer, without sockets.
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
  std::string method, target, path, query;
  int version = 11;  // of HTTP, times ten
  Headers headers;   // names in lower case
  bool keep_alive = true;
  std::optional<uint64_t> content_length;  // absent with chunks, and without a body
  bool chunked = false;

  // The value of the only header of that name; absent: there is none.
  const std::string* find(std::string_view lower_case_name) const;
  size_t count(std::string_view lower_case_name) const;
};

struct HttpRequest {
  RequestHead head;
  std::string body;
  ByteShare share;     // of all bodies, the body's
  std::string id;      // X-Request-Id
  std::string tenant;  // whose key; equal for equal keys, tells nothing of them; "" without keys
  std::chrono::steady_clock::time_point arrival;
  std::optional<std::chrono::milliseconds> timeout;  // X-Request-Timeout-Ms

  // Gives back its memory, and then its share.
  void forget_body();
};

struct HttpReply {
  int status = 200;
  std::string body = {};
  // In the place of `body`: one document for all, however many connections are slow to take it.
  std::shared_ptr<const std::string> document = {};
  std::string content_type = "application/json";
  Headers headers = {};
  std::shared_ptr<const void> held = {};  // budget that `body` takes until it is sent

  const std::string& content() const { return document != nullptr ? *document : body; }
};

// The reply to an error: its body and the headers that go with the status.
HttpReply reply_of(const ApiError& error);
// What is told of any exception: ApiError as it is, InputError as 400, anything else as 500 without
// a word of what it is about (that is logged).
ApiError api_error_of(const std::exception& error, const std::string& request_id);
HttpReply reply_of(const std::exception& error, const std::string& request_id);

// What an answer may read, copy or write on a thread that serves connections; beyond, see
// PendingReply::Part::work.
inline constexpr int64_t kQuickBytes = 64 << 10;

// An answer that comes by and by. One thread at a time calls it.
class PendingReply {
 public:
  virtual ~PendingReply() = default;  // what is still computed for it is cancelled

  // wake: called from any thread when take() may have something new; not called after this object
  // is gone. What this and take() throw ends the answer with an error.
  virtual void start(std::function<void()> wake) = 0;

  struct Part {
    std::optional<HttpReply> whole = {};  // the whole answer, nothing was there before
    std::string events = {};              // of a stream, in the order they come
    bool done = false;
    bool failed = false;  // the events end with an error: the connection is closed behind them
    // In the place of all the above, and before an event of a stream: what takes long. A worker
    // does it, and take() is called again then, or this object ends; what it throws ends the answer
    // with an error.
    std::function<void()> work = {};
  };
  virtual Part take() = 0;
  // What start(), take() or their work threw has ended the answer: for those who count. Only
  // error_event() is called then.
  virtual void failed() noexcept {}
  // The event that ends a stream after an error.
  virtual std::string error_event(const ApiError& error) const = 0;
};

// The body of an answer that is told whole, which a worker writes if it is large.
class WholeBody {
 public:
  // The last part, of about so many bytes, or the work that comes before it.
  PendingReply::Part part(int64_t bytes, std::function<std::string()> write);

 private:
  std::optional<std::string> body_;
};

struct HttpAnswer {
  HttpReply reply = {};
  std::unique_ptr<PendingReply> pending = {};  // in its place
};

}  // namespace trireme
