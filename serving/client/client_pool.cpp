#include "serving/client/client_pool.h"

#include <algorithm>

namespace trireme {
namespace {

// Servers close idle connections after a minute or more; vLLM after five seconds.
constexpr std::chrono::seconds kIdleTime{4};

}  // namespace

void ClientPool::close_old() {
  const auto oldest = std::chrono::steady_clock::now() - kIdleTime;
  const auto fresh = std::find_if(idle_.begin(), idle_.end(),
                                  [&](const Idle& idle) { return idle.since >= oldest; });
  idle_.erase(idle_.begin(), fresh);
}

std::shared_ptr<HttpClient> ClientPool::take_idle() {
  close_old();
  if (idle_.empty()) return nullptr;
  std::shared_ptr<HttpClient> client = std::move(idle_.back().client);
  idle_.pop_back();
  return client;
}

boost::asio::awaitable<ResponseHead> ClientPool::send(const std::string& head,
                                                      std::string_view body,
                                                      HttpClient::Limit connect_limit,
                                                      HttpClient::Limit limit,
                                                      std::shared_ptr<HttpClient>& client) {
  if (const std::shared_ptr<HttpClient> kept = take_idle(); kept != nullptr) {
    client = kept;
    try {
      co_await kept->send(head, body, limit);
      co_return co_await kept->read_head(limit);
    } catch (const ClientError& error) {
      // Otherwise the server has closed it before it received the request.
      if (error.timed_out() || kept->is_closed() || kept->has_response()) throw;
    }
  }
  const std::shared_ptr<HttpClient> fresh = make_client();
  client = fresh;
  co_await fresh->connect(connect_limit);
  co_await fresh->send(head, body, limit);
  co_return co_await fresh->read_head(limit);
}

void ClientPool::give_back(std::shared_ptr<HttpClient> client) {
  if (client->can_be_reused())
    idle_.push_back({std::move(client), std::chrono::steady_clock::now()});
}

}  // namespace trireme
