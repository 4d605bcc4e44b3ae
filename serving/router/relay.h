// One request on its way through the router. For .cpp files only (it includes Asio).
//
// It is sent to one server after the other until one answers; once a byte of the answer has gone to
// the client it is never sent anew, and its body is forgotten. Streams of events go through event
// by event; anything else is read whole, up to a bound, so that it too can still be had from
// another server when this one breaks off.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "serving/balance/server_choice.h"
#include "serving/client/client_pool.h"
#include "serving/http/server/exchange.h"
#include "serving/router/router_config.h"
#include "serving/router/router_metrics.h"

namespace trireme {

struct RelayLimits {
  std::chrono::milliseconds connect{5000};
  std::chrono::milliseconds silence{600'000};  // of a server, before its answer and within
  RelayedAnswerLimits answers = {};
  size_t buffered_events =
      256 << 10;  // that the client has not taken: the server is read no further
};

class Relay;

// What all requests share. The thread of `executor` alone touches what is not of other threads by
// its own words.
struct RelayState {
  boost::asio::any_io_executor executor;
  RelayLimits limits;
  std::shared_ptr<TenantBudgets> all_answers;
  ServerChoice& choice;
  RouterMetrics& metrics;
  std::vector<std::unique_ptr<ClientPool>> pools;  // of each server
  std::vector<std::set<Relay*>> under_way;         // at each server
  // A server could not be connected to.
  std::function<void(size_t server, const std::string& why)> on_unreachable;
};

class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(RelayState& state, HttpRequest request, std::vector<uint64_t> blocks);

  // Any thread.
  void start(std::function<void()> wake);
  PendingReply::Part take();
  void cancel();  // wake is not called any more, and the server is left

  // The state's thread: its server is lost.
  void break_off();

 private:
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;
  enum class Next { kDone, kOtherServer };

  Awaitable<void> run();
  Awaitable<void> relay();
  Awaitable<Next> attempt(size_t server);
  Awaitable<Next> answer(size_t server, const ResponseHead& head);
  Awaitable<void> pass_events();
  Awaitable<std::string> read_whole();
  void hold(const std::string& bytes);
  bool put_events(const std::string& events, bool done, bool failed = false);
  void put_whole(HttpReply reply);
  void fail(const ApiError& error);
  bool is_cancelled();

  RelayState& state_;
  HttpRequest request_;  // the state's thread
  const std::vector<uint64_t> blocks_;
  HeldBytes held_;                         // of the answer
  std::shared_ptr<HttpClient> client_;     // the state's thread
  HttpReply refusal_;                      // of the last server that was not ready
  bool refused_ = false, passed_ = false;  // passed: bytes have gone to the client
  boost::asio::steady_timer room_;         // cancelled when the client has taken something

  std::mutex mutex_;  // of what follows
  std::function<void()> wake_;
  PendingReply::Part part_;
  bool cancelled_ = false;
};

// The relay as the server that listens wants it: it ends with this object.
std::unique_ptr<PendingReply> make_pending(std::shared_ptr<Relay> relay);

}  // namespace trireme
