#include "serving/router/router.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <thread>

#include "engine/core/thread_name.h"
#include "engine/observe/log.h"
#include "serving/api/endpoint.h"
#include "serving/api/json_writer.h"
#include "serving/router/forwarding.h"
#include "serving/router/relay.h"

namespace trireme {
namespace {

namespace asio = boost::asio;

constexpr size_t kMaxHealthBytes = 64 << 10;

std::vector<std::string> urls_of(const std::vector<ServerAddress>& servers) {
  std::vector<std::string> out;
  out.reserve(servers.size());
  for (const ServerAddress& server : servers) out.push_back(server.url());
  return out;
}

[[noreturn]] void fail_not_relayed(const RequestHead& head) {
  throw ApiError(
      404, concat(head.path.substr(0, 200), " is not relayed: send it to each server directly"), "",
      "not_found");
}

HttpResponse status_response(const char* status) {
  std::string body;
  JsonWriter(body).begin_object().key("status").string(status).end_object();
  return {.body = std::move(body)};
}

}  // namespace

class Router::Impl {
 public:
  explicit Impl(RouterConfig config);
  ~Impl();

  HandlerResult relay(HttpRequest& request);
  void check_open() const;

  const RouterConfig config;
  ServerChoice choice;
  RouterMetrics metrics;
  std::atomic<bool> closed{false};

 private:
  asio::awaitable<void> check(size_t server);
  asio::awaitable<int> ask_health(size_t server, const char* path);
  void set_up(size_t server);
  void set_out(size_t server, const std::string& why, bool restarts);
  void break_off(size_t server);
  void run();

  using Context = asio::io_context;
  RelayState state_;
  std::shared_ptr<asio::ssl::context> tls_;
  std::unique_ptr<Context> context_ = std::make_unique<Context>(1);
  std::optional<asio::executor_work_guard<Context::executor_type>> guard_{
      asio::make_work_guard(*context_)};
  std::thread thread_;
};

Router::Impl::Impl(RouterConfig its_config)
    : config(std::move(its_config)),
      choice(config.servers.size(), config.balance),
      metrics(urls_of(config.servers)),
      state_{.executor = {},
             .limits = {.silence = config.silence, .responses = config.responses},
             .all_responses =
                 std::make_shared<TenantBudgets>(config.responses.all, config.responses.of_a_key),
             .choice = choice,
             .metrics = metrics,
             .pools = {},
             .under_way = std::vector<std::set<Relay*>>(config.servers.size()),
             .on_unreachable = [this](size_t server, const std::string& why) {
               set_out(server, why, true);
             }} {
  state_.executor = context_->get_executor();
  for (const ServerAddress& server : config.servers) {
    if (server.tls && tls_ == nullptr) tls_ = make_client_tls(config.ca_file);
    state_.pools.push_back(std::make_unique<ClientPool>(state_.executor, server, tls_));
  }
  for (size_t i = 0; i < config.servers.size(); ++i)
    asio::co_spawn(*context_, check(i), asio::detached);
  thread_ = std::thread([this] { run(); });
}

// An exception of an Asio handler, usually std::bad_alloc, ends only that handler.
void Router::Impl::run() {
  name_thread("router");
  for (bool done = false; !done;) {
    try {
      context_->run();
      done = true;
    } catch (const std::exception& error) {
      log_error("a handler of the connections to servers failed: ", error.what());
    }
  }
}

Router::Impl::~Impl() {
  context_->stop();
  thread_.join();
  state_.pools.clear();
  guard_.reset();
  context_.reset();  // destroys pending requests too, which refer to the state
}

void Router::Impl::set_up(size_t server) {
  if (choice.set_up(server, true)) log_info("server ", config.servers[server].url(), " is up");
}

// restarts: the server loses its prefix cache: its process has been or will be replaced.
void Router::Impl::set_out(size_t server, const std::string& why, bool restarts) {
  if (choice.set_up(server, false, restarts))
    log_warning("server ", config.servers[server].url(), " is down: ", why);
}

void Router::Impl::break_off(size_t server) {
  const std::set<Relay*> broken = state_.under_way[server];
  for (Relay* relay : broken) relay->break_off();
}

asio::awaitable<int> Router::Impl::ask_health(size_t server, const char* path) {
  const ServerAddress& address = config.servers[server];
  const auto client = state_.pools[server]->make_client();
  co_await client->connect(config.health_timeout);
  co_await client->send(concat("GET ", address.base, path, " HTTP/1.1\r\nHost: ",
                               address.authority(), "\r\nConnection: close\r\n\r\n"),
                        "", config.health_timeout);
  const ResponseHead head = co_await client->read_head(config.health_timeout);
  co_await read_whole_body(*client, kMaxHealthBytes, config.health_timeout);
  co_return head.status;
}

asio::awaitable<void> Router::Impl::check(size_t server) {
  asio::steady_timer pause(state_.executor);
  for (int failures = 0;;) {
    try {
      const char* path = "/health/ready";
      int status = co_await ask_health(server, path);
      if (status == 404) {  // asked again each time: another program may serve there by then
        path = "/health";
        status = co_await ask_health(server, path);
      }
      failures = 0;
      if (status == 200)
        set_up(server);
      else
        set_out(server, concat(path, " returns status ", status), false);
    } catch (const ClientError& error) {
      ++failures;
      const bool hangs = failures >= config.health_failures;
      if (hangs || !error.timed_out()) set_out(server, error.what(), true);
      if (hangs) break_off(server);
    } catch (const std::exception& error) {  // the router's own error, not the server's
      log_error("server ", config.servers[server].url(), " cannot be checked: ", error.what());
    }
    state_.pools[server]->close_old();
    pause.expires_after(config.health_interval);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

void Router::Impl::check_open() const {
  if (closed)
    throw ApiError(503, "the router is shutting down", "", "shutting_down").retry_after(1000);
  if (!choice.any_up())
    throw ApiError(503, "no server responds", "", "no_server").retry_after(1000);
}

HandlerResult Router::Impl::relay(HttpRequest& request) {
  if (has_dot_segments(request.head.path))
    throw ApiError(400, "the request's path has a segment . or ..", "", "bad_request");
  std::vector<uint64_t> blocks;
  if (request.head.method == "POST") {
    const PromptText prompt = prompt_text(request);
    blocks = prefix_blocks(prompt.text, prompt.scope);
  }
  return {{}, make_pending(std::make_shared<Relay>(state_, std::move(request), std::move(blocks)))};
}

Router::Router(RouterConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}

Router::~Router() = default;

Routes Router::routes() {
  Routes routes;
  const auto own = [&](const char* path, Access access, std::function<HandlerResult()> what) {
    routes.add({.method = "GET",
                .path = path,
                .access = access,
                .handle = [what = std::move(what)](HttpRequest&) { return what(); },
                .is_quick = true});
  };
  own("/health", Access::kOpen,
      [] { return HandlerResult{{.body = "", .content_type = "text/plain"}}; });
  own("/health/live", Access::kOpen, [] { return HandlerResult{status_response("live")}; });
  own("/health/ready", Access::kOpen, [this] {
    impl_->check_open();
    return HandlerResult{status_response("ready")};
  });
  own("/metrics", Access::kMetrics, [this] {
    return HandlerResult{{.body = impl_->metrics.text(impl_->choice),
                          .content_type = "text/plain; version=0.0.4; charset=utf-8"}};
  });
  // Admin requests (weights, adapters, metrics) concern one server, not whichever is chosen. Those
  // below /v1 are rejected; the others have no route.
  const auto relayed = [&](const char* method, const char* path) {
    routes.add({.method = method,
                .path = path,
                .handle = [this](HttpRequest& request) { return impl_->relay(request); },
                .admit = [this](const RequestHead&, const std::string&) { impl_->check_open(); }});
  };
  const auto below_v1 = [](const Endpoint& endpoint) {
    return std::string_view(endpoint.path).starts_with("/v1/");
  };
  for (const Endpoint* endpoint : endpoints())
    if (endpoint->access == Access::kAdmin && below_v1(*endpoint))
      routes.add(
          {.method = endpoint->method,
           .path = endpoint->path,
           .handle = [](HttpRequest& request) -> HandlerResult { fail_not_relayed(request.head); },
           .admit = [](const RequestHead& head, const std::string&) { fail_not_relayed(head); }});
  relayed("POST", "/v1/*");
  relayed("GET", "/v1/*");
  for (const Endpoint* endpoint : endpoints())
    if (endpoint->access == Access::kUser && !below_v1(*endpoint))
      relayed(endpoint->method, endpoint->path);
  return routes;
}

void Router::count(const RequestSummary& summary) { impl_->metrics.http_request(summary); }

void Router::close() { impl_->closed = true; }

bool Router::wait_for_a_server(std::chrono::milliseconds limit) const {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!impl_->choice.any_up() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return impl_->choice.any_up();
}

}  // namespace trireme
