// HTTP client with misbehaving servers.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "engine/core/error.h"
#include "serving/client/http_client.h"
#include "tests/serving/client/scripted_server.h"

namespace trireme::test_http_client {
namespace {

namespace asio = boost::asio;

using std::chrono::milliseconds;

// Server that sends `pieces` in response to the first request, and then closes the connection.
test::ScriptedServer server_sending(const std::vector<std::string>& pieces) {
  return test::ScriptedServer(std::make_shared<test::ResponseScript>(std::vector{
      test::ScriptedResponse{pieces.front(), true, {pieces.begin() + 1, pieces.end()}}}));
}

struct ReceivedResponse {
  ResponseHead head;
  std::string body, error;
  bool timed_out = false, reusable = false;
};

ReceivedResponse ask(const ServerAddress& server, milliseconds limit = milliseconds(60'000),
                     const std::shared_ptr<KnownAddresses>& known = {}) {
  asio::io_context context(1);
  ReceivedResponse out;
  const auto run = [&]() -> asio::awaitable<void> {
    const auto client = make_http_client(context.get_executor(), server, nullptr, known);
    try {
      co_await client->connect(limit);
      co_await client->send("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "", limit);
      out.head = co_await client->read_head(limit);
      out.body = co_await read_whole_body(*client, 1000, limit);
      out.reusable = client->can_be_reused();
    } catch (const ClientError& error) {
      out.error = error.what();
      out.timed_out = error.timed_out();
    }
  };
  asio::co_spawn(context, run(), [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  });
  context.run();
  return out;
}

ReceivedResponse received_after(const std::vector<std::string>& pieces) {
  const test::ScriptedServer server = server_sending(pieces);
  return ask(server.address());
}

TEST(HttpClient, ReadsEveryFraming) {
  const ReceivedResponse sized =
      received_after({"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 3\r\n\r\na", "bc"});
  EXPECT_EQ(sized.error, "");
  EXPECT_EQ(sized.body, "abc");
  EXPECT_EQ(*sized.head.find("x-a"), "b");
  EXPECT_TRUE(sized.reusable);
  const ReceivedResponse chunked =
      received_after({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r",
                      "\n1;x=y\r\nc\r\n0\r\n\r\n"});
  EXPECT_EQ(chunked.body, "abc");
  EXPECT_TRUE(chunked.reusable);
  const ReceivedResponse closed = received_after({"HTTP/1.0 200 OK\r\n\r\nab", "c"});
  EXPECT_EQ(closed.body, "abc");
  EXPECT_FALSE(closed.reusable);
  const ReceivedResponse after_100 =
      received_after({"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"});
  EXPECT_EQ(after_100.head.status, 503);
}

TEST(HttpClient, KeepsNoConnectionThatHasMoreInIt) {
  const ReceivedResponse response = received_after(
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: "
       "4\r\n\r\nevil"});
  EXPECT_EQ(response.body, "a");
  EXPECT_FALSE(response.reusable);
  EXPECT_FALSE(
      received_after({"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na"})
          .reusable);
}

TEST(HttpClient, RefusesResponsesThatCouldBeReadInTwoWays) {
  const std::string chunks = "1\r\na\r\n0\r\n\r\n";
  for (const std::string& head :
       {std::string("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        std::string("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        std::string("Transfer-Encoding: gzip, chunked\r\n"),
        std::string("Transfer-Encoding: gzip\r\n"),
        std::string("Content-Length: 5\r\nContent-Length: 6\r\n"),
        std::string("Content-Length: -1\r\n"),
        std::string("Content-Length: 99999999999999999999\r\n")})
    EXPECT_NE(received_after({"HTTP/1.1 200 OK\r\n" + head + "\r\n" + chunks}).error, "") << head;
  EXPECT_NE(received_after({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"}).error,
            "");
  EXPECT_NE(received_after({"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"}).error, "");
}

TEST(HttpClient, NamesWhatBrokeOff) {
  for (const char* text : {"", "HTTP/1.1 20", "no HTTP at all\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    const ReceivedResponse response = received_after({text});
    EXPECT_NE(response.error.find("http://127.0.0.1:"), std::string::npos) << text;
    EXPECT_FALSE(response.timed_out) << text;
  }
}

TEST(HttpClient, BoundsHeadsAndBodies) {
  EXPECT_NE(
      received_after({"HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x') + "\r\n\r\n"}).error, "");
  EXPECT_EQ(
      received_after({"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x')})
          .error,
      "");
  EXPECT_NE(
      received_after({"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x')})
          .error,
      "");
}

TEST(HttpClient, WaitsForNothingLongerThanItsLimit) {
  for (const char* text : {"", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"}) {
    const test::ScriptedServer silent(std::make_shared<test::ResponseScript>(
        std::vector<test::ScriptedResponse>{{text}}));  // keeps the connection
    const auto start = std::chrono::steady_clock::now();
    const ReceivedResponse response = ask(silent.address(), milliseconds(150));
    EXPECT_TRUE(response.timed_out) << text;
    EXPECT_NE(response.error.find("took longer than 0.15 s"), std::string::npos) << response.error;
    EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(140));
  }
}

TEST(HttpClient, NamesAServerThatIsNotThere) {
  const ReceivedResponse refused = ask(parse_server_address("http://127.0.0.1:1", "--server"));
  EXPECT_NE(refused.error.find("http://127.0.0.1:1: connecting: "), std::string::npos)
      << refused.error;
  const ReceivedResponse nameless =
      ask(parse_server_address("http://nowhere.invalid:1", "--server"));
  EXPECT_NE(nameless.error.find("resolving its host name"), std::string::npos) << nameless.error;
}

// A failing name service does not make a known server unavailable; a changed address takes effect
// in time.
TEST(HttpClient, FindsAServerWhoseNameIsNotFoundAnyMore) {
  const std::string response = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
  const auto known = std::make_shared<KnownAddresses>();
  ServerAddress server;
  const auto ask_at = [&](const std::string& host, const test::ScriptedServer& there) {
    server = there.address();
    server.host = host;
    return ask(server, milliseconds(60'000), known);
  };
  const std::string no_name = "a..b";
  {
    const test::ScriptedServer first = server_sending({response});
    EXPECT_NE(ask_at(no_name, first).error, "");
    EXPECT_EQ(ask_at("localhost", first).body, "a");
  }
  ASSERT_FALSE(known->list.empty());
  const auto looked = known->looked;
  // While fresh, known addresses are used without a lookup; later they are the fallback.
  for (const milliseconds fresh : {known->fresh, milliseconds(0)}) {
    const test::ScriptedServer next = server_sending({response});
    for (auto& endpoint : known->list)
      endpoint.port(static_cast<uint16_t>(std::stoi(next.address().port)));
    known->fresh = fresh;
    EXPECT_EQ(ask_at(no_name, next).body, "a") << fresh.count();
    EXPECT_EQ(known->looked == looked, fresh > milliseconds(0));
  }
  // No server is there: the name is looked up again the next time.
  EXPECT_NE(ask(server, milliseconds(60'000), known).error, "");
  EXPECT_FALSE(known->looked.has_value());
}

}  // namespace
}  // namespace trireme::test_http_client
