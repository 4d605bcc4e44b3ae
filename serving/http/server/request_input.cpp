#include "serving/http/server/request_input.h"

#include <algorithm>

namespace trireme {
namespace {

// Largest body of a rejected request that is read and dropped to keep the connection open.
constexpr size_t kDiscarded = 64 << 10;

}  // namespace

void RequestInput::leave() {
  leave_ = true;
  if (idle_ && first_) transport_.arm(time_for_head());
  if (idle_ && !first_) transport_.set_unwanted(true);
  transport_.notify();
}

// Time limit until the first byte. A client that connects just as the server begins to drain cannot
// know, so its first request still gets a response.
std::chrono::milliseconds RequestInput::time_for_head() const {
  if (!first_) return limits_.idle_time;
  return leave_ ? std::min(limits_.unasked_time, limits_.head_time) : limits_.head_time;
}

size_t RequestInput::feed(RequestReader& reader) {
  const size_t taken = reader.feed(transport_.received());
  transport_.received().erase(0, taken);
  return taken;
}

RequestInput::Awaitable<RequestInput::Head> RequestInput::read_head(RequestReader& reader) {
  transport_.arm(time_for_head());
  transport_.free_received();
  bool begun = false;
  idle_ = true;
  transport_.set_unwanted(leave_ && !first_);
  while (reader.state() == RequestReader::State::kHead) {
    const size_t taken = feed(reader);
    if (reader.state() != RequestReader::State::kHead) break;
    if (reader.begun() && !begun) {
      begun = true;
      idle_ = false;
      transport_.set_unwanted(false);
      transport_.arm(limits_.head_time);
    }
    if (taken > 0 || co_await transport_.fill()) continue;
    if (!transport_.expired() || !begun) co_return Head::kNone;
    transport_.disarm();
    co_return Head::kTooSlow;
  }
  idle_ = false;
  transport_.set_unwanted(false);
  transport_.disarm();
  co_return Head::kRead;
}

bool RequestInput::has_small_body(const RequestReader& reader, const HttpExchange& exchange) const {
  return reader.state() == RequestReader::State::kBody && !exchange.expects_continue() &&
         reader.head().content_length.value_or(kDiscarded + 1) <= kDiscarded;
}

RequestInput::Awaitable<bool> RequestInput::read_body(RequestReader& reader,
                                                      HttpExchange& exchange) {
  if (reader.state() == RequestReader::State::kBody && exchange.expects_continue() &&
      transport_.received().empty())
    if (!co_await transport_.write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  transport_.arm(limits_.body_time);
  while (reader.state() == RequestReader::State::kBody) {
    const size_t taken = feed(reader);
    if (reader.state() != RequestReader::State::kBody || taken > 0 || co_await transport_.fill())
      continue;
    if (!transport_.expired()) co_return false;
    exchange.refusal.emplace(408, "the request's body did not arrive in time", "",
                             "request_timeout");
    exchange.keep = false;
    break;
  }
  transport_.disarm();
  if (reader.state() == RequestReader::State::kRefused) {
    exchange.refusal = reader.refusal();
    exchange.keep = false;
  }
  co_return true;
}

RequestInput::Awaitable<bool> RequestInput::discard_body(RequestReader& reader) {
  reader.discard_body();
  transport_.arm(limits_.body_time);
  while (reader.state() == RequestReader::State::kBody) {
    const size_t taken = feed(reader);
    if (reader.state() != RequestReader::State::kBody || taken > 0) continue;
    if (!co_await transport_.fill()) co_return false;
  }
  transport_.disarm();
  co_return reader.state() == RequestReader::State::kDone;
}

}  // namespace trireme
