// Reuse of connections that the server closes.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "serving/client/client_pool.h"
#include "tests/serving/client/scripted_server.h"

namespace trireme::test_client_pool {
namespace {

namespace asio = boost::asio;
using test::ResponseScript;
using test::ScriptedServer;

constexpr std::chrono::milliseconds kLimit{60'000};
constexpr char kRequest[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
constexpr char kResponse[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

struct SecondResponse {
  int status = 0;  // 0: the request failed
  bool has_response = false;
};

// Response to the second of two requests.
SecondResponse second_response(const ServerAddress& server) {
  asio::io_context context(1);
  SecondResponse out;
  const auto run = [&]() -> asio::awaitable<void> {
    ClientPool pool(context.get_executor(), server, nullptr);
    std::shared_ptr<HttpClient> client;
    co_await pool.send(kRequest, "", kLimit, kLimit, client);
    EXPECT_EQ(co_await read_whole_body(*client, 1000, kLimit), "");
    pool.give_back(std::move(client));
    try {
      const ResponseHead head = co_await pool.send(kRequest, "", kLimit, kLimit, client);
      out.status = head.status;
    } catch (const ClientError&) {
      out.status = 0;
    }
    out.has_response = client->has_response();
  };
  asio::co_spawn(context, run(), [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  });
  context.run();
  return out;
}

TEST(ClientPool, SendsAgainOnlyBeforeTheFirstByteOfAResponse) {
  for (const std::string bytes : {"", "H", "HTTP/1.1 200 O", "HTTP/1.1 200 OK\r\nContent-",
                                  "HTTP/1.1 100 Continue\r\n\r\n"}) {
    const auto script = std::make_shared<ResponseScript>(
        std::vector<test::ScriptedResponse>{{kResponse}, {bytes, true}, {kResponse}});
    const ScriptedServer server(script);
    const SecondResponse second = second_response(server.address());
    EXPECT_EQ(second.status, bytes.empty() ? 200 : 0) << bytes;
    EXPECT_TRUE(second.has_response) << bytes;
    EXPECT_EQ(script->requests(), bytes.empty() ? 3 : 2) << bytes;
  }
}

// A request that fails on a new connection, too, is not sent a third time.
TEST(ClientPool, SendsOnlyOnceOnANewConnection) {
  const auto script = std::make_shared<ResponseScript>(
      std::vector<test::ScriptedResponse>{{kResponse}, {"", true}, {"", true}, {kResponse}});
  const ScriptedServer server(script);
  const SecondResponse second = second_response(server.address());
  EXPECT_EQ(second.status, 0);
  EXPECT_FALSE(second.has_response);
  EXPECT_EQ(script->requests(), 3);
}

}  // namespace
}  // namespace trireme::test_client_pool
