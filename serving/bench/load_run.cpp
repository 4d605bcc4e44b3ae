#include "serving/bench/load_run.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include "engine/core/file_limit.h"
#include "engine/io/strict_json.h"
#include "serving/bench/event_reader.h"
#include "serving/bench/stream_timer.h"
#include "serving/client/client_pool.h"

namespace trireme {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kConnectTime{30'000};
constexpr size_t kMaxEventBytes = 4 << 20, kMaxErrorBody = 64 << 10, kMaxModelsBody = 8 << 20;
constexpr int64_t kMaxResponseBytes = int64_t{1} << 30;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string request_head(const LoadOptions& options, const char* method, const std::string& path,
                         const std::string& body) {
  std::string out = concat(
      method, " ", options.server.base, path, " HTTP/1.1\r\nHost: ", options.server.authority(),
      "\r\nUser-Agent: trireme\r\nAccept: text/event-stream, application/json\r\n");
  if (!options.api_key.empty()) out += concat("Authorization: Bearer ", options.api_key, "\r\n");
  if (!body.empty())
    out += concat("Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n");
  return out.append("\r\n");
}

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, const std::vector<LoadRequest>& requests,
          const std::vector<double>& arrivals)
      : options_(options),
        requests_(requests),
        arrivals_(arrivals),
        clients_(context_.get_executor(), options.server, tls_of(options)) {
    result_.outcomes.resize(requests.size());
  }
  static std::shared_ptr<asio::ssl::context> tls_of(const LoadOptions& options) {
    return options.server.tls ? make_client_tls(options.ca_file) : nullptr;
  }

  LoadResult run() {
    start_ = Clock::now();
    asio::co_spawn(context_, dispatch(), [](const std::exception_ptr& error) {
      if (error) std::rethrow_exception(error);
    });
    context_.run();
    result_.duration = seconds_since(start_);
    return std::move(result_);
  }

 private:
  asio::awaitable<void> dispatch();
  asio::awaitable<void> request(size_t number);
  asio::awaitable<void> exchange(const LoadRequest& request, RequestOutcome& outcome);
  asio::awaitable<void> read_events(HttpClient& client, StreamTimer& timer, Clock::time_point sent);

  const LoadOptions& options_;
  const std::vector<LoadRequest>& requests_;
  const std::vector<double>& arrivals_;
  asio::io_context context_{1};
  asio::steady_timer ended_{context_};  // cancelled when a request ends
  ClientPool clients_;
  int64_t under_way_ = 0;
  Clock::time_point start_;
  LoadResult result_;
};

asio::awaitable<void> LoadRun::dispatch() {
  asio::steady_timer arrival(context_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (arrivals_[i] > 0) {
      const std::chrono::duration<double> after(arrivals_[i]);
      arrival.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(after));
      co_await arrival.async_wait(asio::use_awaitable);
    }
    while (options_.max_concurrency > 0 && under_way_ >= options_.max_concurrency) {
      ended_.expires_at(Clock::time_point::max());
      co_await ended_.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    ++under_way_;
    asio::co_spawn(context_, request(i), asio::detached);
  }
}

asio::awaitable<void> LoadRun::request(size_t number) {
  RequestOutcome& outcome = result_.outcomes[number];
  outcome.sent = seconds_since(start_);
  try {
    co_await exchange(requests_[number], outcome);
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  --under_way_;
  ended_.cancel();
}

asio::awaitable<void> LoadRun::exchange(const LoadRequest& request, RequestOutcome& outcome) {
  const auto sent = Clock::now();
  const std::string sent_head = request_head(options_, "POST", options_.path, request.body);
  std::shared_ptr<HttpClient> client;
  const ResponseHead head = co_await clients_.send(
      sent_head, request.body, std::min(kConnectTime, options_.timeout), options_.timeout, client);
  if (head.status != 200) {
    const std::string body = co_await read_whole_body(*client, kMaxErrorBody, options_.timeout);
    clients_.give_back(std::move(client));
    throw Error(concat("status ", head.status, ": ", error_message_of(body)));
  }
  const std::string* type = head.find("content-type");
  if (type == nullptr || !type->starts_with("text/event-stream"))
    throw Error(concat("expected a response of type text/event-stream, got ",
                       type == nullptr ? "?" : *type));
  StreamTimer timer(outcome, options_.chat);
  co_await read_events(*client, timer, sent);
  clients_.give_back(std::move(client));
  timer.finish(request.input_tokens);
  result_.has_usage = result_.has_usage && timer.has_usage();
}

asio::awaitable<void> LoadRun::read_events(HttpClient& client, StreamTimer& timer,
                                           Clock::time_point sent) {
  EventReader reader(kMaxEventBytes);
  int64_t bytes = 0;
  for (std::string piece; co_await client.read_body(piece, options_.timeout); piece.clear()) {
    const double now = seconds_since(sent);
    bytes += std::ssize(piece);
    if (bytes > kMaxResponseBytes)
      fail_input("a response is larger than ", kMaxResponseBytes, " bytes");
    reader.feed(piece, [&](const std::string& data) { timer.event(data, now); });
  }
}

}  // namespace

LoadResult run_load(const LoadOptions& options, const std::vector<LoadRequest>& requests,
                    const std::vector<double>& arrivals) {
  TRIREME_CHECK(requests.size() == arrivals.size(), requests.size(), " requests, but ",
                arrivals.size(), " arrival times");
  const auto all = std::ssize(requests);
  raise_file_limit((options.max_concurrency > 0 ? std::min(all, options.max_concurrency) : all) +
                   64);
  return LoadRun(options, requests, arrivals).run();
}

std::string first_served_model(const LoadOptions& options) {
  asio::io_context context(1);
  std::string body;
  ResponseHead head;
  const auto ask = [&]() -> asio::awaitable<void> {
    const auto client =
        make_http_client(context.get_executor(), options.server, LoadRun::tls_of(options));
    co_await client->connect(std::min(kConnectTime, options.timeout));
    co_await client->send(request_head(options, "GET", "/v1/models", ""), "", options.timeout);
    head = co_await client->read_head(options.timeout);
    body = co_await read_whole_body(*client, kMaxModelsBody, options.timeout);
  };
  asio::co_spawn(context, ask(), [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  });
  context.run();
  if (head.status != 200)
    throw Error(concat(options.server.url(), "/v1/models: status ", head.status, ": ",
                       error_message_of(body)));
  const auto models = parse_json_text<nlohmann::json>(body);
  const auto data = models.is_object() ? models.find("data") : models.end();
  if (!models.is_object() || data == models.end() || !data->is_array() || data->empty() ||
      !(*data)[0].is_object() || !(*data)[0].contains("id") || !(*data)[0]["id"].is_string())
    throw Error(concat(options.server.url(), "/v1/models lists no model: give --model"));
  return (*data)[0]["id"].get<std::string>();
}

}  // namespace trireme
