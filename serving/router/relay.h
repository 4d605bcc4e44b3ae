// Relay of one request through the router. For .cpp files only (includes Asio).
//
// Tries one server after the other until one responds: the next one after status 503, or after a
// connection that fails or breaks before a byte of the response. If none is left, the client gets
// the last 503 of a server, or a 503 of the router. If a server is silent for too long, the client
// gets 504 without a retry.
// Once a byte of a response has arrived, unless its status is 503, the server runs the request or
// has run it: the request is never retried. A response that then breaks off is reported as 502, or
// as an error event once events have been passed to the client, which also frees the request's
// body.
// Event streams are passed on event by event. Any other response is read completely, up to a limit,
// before the client gets it, so that a failure still has a status.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "serving/client/client_pool.h"
#include "serving/http/server/exchange.h"
#include "serving/load_balancer/server_choice.h"
#include "serving/router/router_config.h"
#include "serving/router/router_metrics.h"

namespace trireme {

struct RelayLimits {
  std::chrono::milliseconds connect{5000};
  std::chrono::milliseconds silence{600'000};  // of a server, before and during its response
  RelayedResponseLimits responses = {};
  // Limit on bytes of events that the client has not read yet. At the limit the relay stops reading
  // from the server.
  size_t buffered_events = 256 << 10;
};

class Relay;

// State that all relays share. Used only on the thread of `executor`, except for members that are
// thread-safe themselves.
struct RelayState {
  boost::asio::any_io_executor executor;
  RelayLimits limits;
  std::shared_ptr<TenantBudgets> all_responses;  // buffered bytes: RelayedResponseLimits::all
  ServerChoice& choice;
  RouterMetrics& metrics;
  std::vector<std::unique_ptr<ClientPool>> pools;  // by server
  std::vector<std::set<Relay*>> under_way;         // relays in progress, by server
  // Called when a server cannot be connected to.
  std::function<void(size_t server, const std::string& why)> on_unreachable;
};

class Relay : public std::enable_shared_from_this<Relay> {
 public:
  // blocks: prefix_blocks() of the prompt, for ServerChoice; empty: none.
  Relay(RelayState& state, HttpRequest request, std::vector<uint64_t> blocks);

  // Any thread.
  void start(std::function<void()> wake);
  ResponseProducer::Part take();
  void cancel();  // closes the connection to the server; `wake` is no longer called

  // Closes the connection to the server because it is down. Only on the thread of the state.
  void break_off();

 private:
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;
  enum class Next { kDone, kOtherServer };

  Awaitable<void> run();
  Awaitable<void> relay();
  Awaitable<Next> attempt(size_t server);
  Awaitable<Next> forward_response(size_t server, const ResponseHead& head);
  Awaitable<void> pass_events();
  Awaitable<std::string> read_whole();
  void hold(const std::string& bytes);
  bool put_events(const std::string& events, bool done, bool failed = false);
  void put_whole(HttpResponse response);
  void fail(const ApiError& error);
  bool is_cancelled();

  RelayState& state_;
  HttpRequest request_;  // state's thread
  const std::vector<uint64_t> blocks_;
  HeldBytes held_;                         // buffered bytes of the response
  std::shared_ptr<HttpClient> client_;     // state's thread
  HttpResponse refusal_;                   // of the last server that was not ready
  bool refused_ = false, passed_ = false;  // passed_: bytes have been passed to the client
  boost::asio::steady_timer room_;         // cancelled when the client has read events

  std::mutex mutex_;  // guards all below
  std::function<void()> wake_;
  ResponseProducer::Part part_;
  bool cancelled_ = false;
};

// Makes a ResponseProducer of the relay, which cancels it on destruction.
std::unique_ptr<ResponseProducer> make_pending(std::shared_ptr<Relay> relay);

}  // namespace trireme
