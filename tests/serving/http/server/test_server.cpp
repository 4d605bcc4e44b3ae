// Connections: framing, limits, time, access.
#include <functional>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_server {
namespace {

using namespace test;
using std::chrono::milliseconds;

const char* kGoodBody = R"({"model":"m","prompt":"hi","max_tokens":3})";

// Checks that a server still works, whatever has happened to it.
void expect_well(const RecordedServer& server) {
  EXPECT_EQ(server.ask(get("/health/live")).status, 200);
  const Response r = server.ask(post("/v1/completions", kGoodBody));
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(HttpServer, RespondsToRequestsOfAConnectionOneAfterTheOther) {
  RecordedServer server;
  RawClient client(server.port());
  std::string all;
  for (int i = 0; i < 100; ++i) all += get("/health/live", concat("X-Request-Id: r-", i, "\r\n"));
  ASSERT_TRUE(client.send(all));
  for (int i = 0; i < 100; ++i) {
    const Response r = client.response();
    ASSERT_EQ(r.status, 200) << i;
    EXPECT_EQ(r.headers.at("X-Request-Id"), concat("r-", i));
    EXPECT_EQ(r.body, R"({"status":"live"})");
  }
}

TEST(HttpServer, ClosesWhenAskedTo) {
  RecordedServer server;
  RawClient client(server.port());
  client.send(get("/health/live", "Connection: close\r\n"));
  const Response r = client.response();
  EXPECT_EQ(r.headers.at("Connection"), "close");
  EXPECT_TRUE(client.is_closed());
  RawClient old(server.port());
  old.send("GET /health/live HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.response().status, 200);
  EXPECT_TRUE(old.is_closed());
}

TEST(HttpServer, RespondsToWhoeverHasClosedItsHalf) {
  RecordedServer server;
  RawClient client(server.port());
  client.send(get("/health/live"));
  client.shut_down_sending();
  EXPECT_EQ(client.response().status, 200);
  EXPECT_TRUE(client.is_closed());
}

TEST(HttpServer, RespondsToHeadWithoutABody) {
  RecordedServer server;
  RawClient client(server.port());
  client.send("HEAD /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/health/live"));
  const Response head = client.response(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("Content-Length"), "17");
  EXPECT_EQ(client.response().body, R"({"status":"live"})");
}

TEST(HttpServer, SaysWhatIsWrongWithARequest) {
  RecordedServer server;
  EXPECT_EQ(error_code_of(server.ask(get("/nothing"))), "not_found");
  const Response method = server.ask(get("/v1/completions"));
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("Allow"), "POST");
  const Response looked_up = server.ask(post("/health", "{}"));
  EXPECT_EQ(looked_up.status, 405);
  EXPECT_EQ(looked_up.headers.at("Allow"), "GET, HEAD");
  EXPECT_EQ(
      server.ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
          .status,
      415);
  EXPECT_EQ(
      server
          .ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
               "Content-Length: 2\r\n\r\n{}")
          .status,
      415);
  EXPECT_EQ(server.ask("nonsense\r\n\r\n").status, 400);
  expect_well(server);
}

TEST(HttpServer, KeepsAConnectionWhoseRequestItRefused) {
  RecordedServer server;
  RawClient client(server.port());
  client.send(post("/nothing", "{}") + get("/health/live"));
  EXPECT_EQ(client.response().status, 404);
  EXPECT_EQ(client.response().status, 200);
}

TEST(HttpServer, NamesEachRequest) {
  RecordedServer server;
  EXPECT_EQ(server.ask(get("/health", "X-Request-Id: mine.1-_\r\n")).headers.at("X-Request-Id"),
            "mine.1-_");
  for (const std::string& bad : {std::string("a b"), std::string("<x>"), std::string(129, 'a')}) {
    const std::string id =
        server.ask(get("/health", "X-Request-Id: " + bad + "\r\n")).headers.at("X-Request-Id");
    EXPECT_EQ(id.size(), 32u);
  }
}

TEST(HttpServer, HoldsLimitsOfSize) {
  RecordedServerOptions options;
  options.http.limits.body = 1000;
  RecordedServer server(options);
  const auto body = [](size_t bytes) {
    const std::string begin = R"({"model":"m","prompt":"hi","max_tokens":1,"user":")";
    return begin + std::string(bytes - begin.size() - 2, 'u') + "\"}";
  };
  EXPECT_EQ(server.ask(post("/v1/completions", body(1000))).status, 200);
  const Response large = server.ask(post("/v1/completions", body(1001)));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(error_code_of(large), "body_too_large");
  EXPECT_EQ(large.headers.at("Connection"), "close");
  EXPECT_EQ(server.ask(get("/" + std::string(9000, 'a'))).status, 414);
  EXPECT_EQ(server.ask(get("/health", "X: " + std::string(9000, 'a') + "\r\n")).status, 431);
  std::string many;
  for (int i = 0; i < 10000; ++i) many += "X: y\r\n";
  EXPECT_EQ(server.ask(get("/health", many)).status, 431);
  EXPECT_EQ(server.ask(get("/health", "X: " + std::string(1 << 20, 'a') + "\r\n")).status, 431);
  expect_well(server);
}

TEST(HttpServer, RefusesFramingThatIsAmbiguous) {
  RecordedServer server;
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  for (const char* rest : {"Transfer-Encoding: chunked\r\n\r\n-2\r\nxx",
                           "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nxx",
                           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
                           "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"}) {
    RawClient client(server.port());
    client.send(head + rest);
    const Response r = client.response();
    EXPECT_TRUE(r.status == 400 || r.status == 413) << rest << r.status;
    EXPECT_TRUE(client.is_closed()) << rest;
  }
  expect_well(server);
}

TEST(HttpServer, TakesABodyInChunks) {
  RecordedServer server;
  std::string bytes =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* c = kGoodBody; *c != 0; ++c) bytes += std::string("1\r\n") + *c + "\r\n";
  EXPECT_EQ(server.ask(bytes + "0\r\n\r\n").status, 200);
}

TEST(HttpServer, AsksToGoOnWithALargeBody) {
  RecordedServer server;
  RawClient client(server.port());
  const std::string body = kGoodBody;
  const std::string head = post("/v1/completions", body, "Expect: 100-continue\r\n");
  client.send(head.substr(0, head.size() - body.size()));
  EXPECT_EQ(client.response().status, 100);
  client.send(body);
  EXPECT_EQ(client.response().status, 200);
  // A refused request gets no 100 Continue.
  RawClient other(server.port());
  const std::string refused = post("/nothing", body, "Expect: 100-continue\r\n");
  other.send(refused.substr(0, refused.size() - body.size()));
  EXPECT_EQ(other.response().status, 404);
  EXPECT_TRUE(other.is_closed());
}

RecordedServerOptions limited(milliseconds HttpLimits::*time, int ms) {
  RecordedServerOptions options;
  options.http.limits.*time = milliseconds(ms);
  return options;
}

// Bytes sent too slowly on a new connection are refused. The time limit starts with the connection;
// this thread may be suspended in between, and the connection is then closed silently: tries again.
void expect_head_too_slow(const RecordedServer& server,
                          const std::function<void(RawClient&)>& send_slowly) {
  for (int tries = 0; tries < 50; ++tries) {
    RawClient client(server.port());
    send_slowly(client);
    const int status = client.response().status;
    if (status == 0) continue;
    EXPECT_EQ(status, 408);
    EXPECT_TRUE(client.is_closed());
    return;
  }
  ADD_FAILURE() << "no response to a slow head";
}

TEST(HttpServer, HoldsLimitsOfTime) {
  const RecordedServer heads(limited(&HttpLimits::head_time, 150));
  RawClient silent(heads.port());
  EXPECT_TRUE(silent.is_closed());
  EXPECT_EQ(silent.buffer(), "");
  expect_head_too_slow(heads, [](RawClient& client) { client.send("GET /health"); });
  const RecordedServer between(limited(&HttpLimits::idle_time, 150));
  RawClient idle(between.port());
  idle.send(get("/health/live"));
  EXPECT_EQ(idle.response().status, 200);
  EXPECT_TRUE(idle.is_closed());
  expect_well(between);
  const RecordedServer bodies(limited(&HttpLimits::body_time, 150));
  RawClient half(bodies.port());
  const std::string request = post("/v1/completions", kGoodBody);
  half.send(request.substr(0, request.size() - 1));
  const Response r = half.response();
  EXPECT_EQ(r.status, 408);
  EXPECT_EQ(error_code_of(r), "request_timeout");
  EXPECT_TRUE(half.is_closed());
  // Without the last chunk.
  RawClient chunks(bodies.port());
  chunks.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  EXPECT_EQ(chunks.response().status, 408);
  expect_well(bodies);
}

TEST(HttpServer, AByteNowAndThenIsTooSlow) {
  const RecordedServer server(limited(&HttpLimits::head_time, 300));
  expect_head_too_slow(server, [](RawClient& client) {
    const std::string request = get("/health", "X: " + std::string(500, 'x') + "\r\n");
    bool open = true;
    for (size_t i = 0; open && i < request.size(); ++i) {
      open = client.send(request.substr(i, 1));
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
}

TEST(HttpServer, HoldsLimitsOfConnections) {
  RecordedServerOptions options;
  options.http.limits.connections = 3;
  RecordedServer server(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(get("/health/live"));
    EXPECT_EQ(clients.back()->response().status, 200);
  }
  RawClient fourth(server.port());
  const Response r = fourth.response();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(error_code_of(r), "too_many_connections");
  EXPECT_EQ(r.headers.at("Retry-After"), "1");
  EXPECT_TRUE(fourth.is_closed());
  clients[0]->send(get("/health/live"));  // the others continue
  EXPECT_EQ(clients[0]->response().status, 200);
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return server.server->counts().connections == 2; }));
  EXPECT_EQ(server.ask(get("/health/live")).status, 200);
}

TEST(HttpServer, HoldsLimitsOfConnectionsOfAnAddress) {
  RecordedServerOptions options;
  options.http.limits.connections_per_address = 2;
  RecordedServer server(options);
  RawClient a(server.port()), b(server.port());
  b.send(get("/health/live"));
  EXPECT_EQ(b.response().status, 200);
  EXPECT_EQ(RawClient(server.port()).response().status, 503);
}

TEST(HttpServer, SurvivesAResetAtEveryByte) {
  RecordedServer server;
  const std::string request =
      post("/v1/completions", R"({"model":"m","prompt":"hi","max_tokens":20,"stream":true})");
  for (size_t bytes = 0; bytes <= request.size(); ++bytes) {
    RawClient client(server.port());
    client.send(request.substr(0, bytes));
    client.reset();
  }
  EXPECT_TRUE(eventually([&] { return server.server->counts().connections == 0; }));
  expect_well(server);
}

TEST(HttpServer, ServesManyConnectionsThatWait) {
  RecordedServerOptions options;
  options.http.limits.connections_per_address = 4000;
  RecordedServer server(options);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 400; ++i) {
    slow.push_back(std::make_unique<RawClient>(server.port()));
    slow.back()->send("GET /health HTTP/1.1\r\nHost: ");
  }
  expect_well(server);
  for (const auto& client : slow) client->send("localhost\r\n\r\n");
  for (const auto& client : slow) EXPECT_EQ(client->response().status, 200);
}

TEST(HttpServer, AsksForKeysUnlessARouteIsOpen) {
  RecordedServerOptions options;
  options.http.keys = ApiKeys({"user"}, {"admin"});
  RecordedServer server(options);
  for (const char* path : {"/health", "/health/live", "/health/ready"})
    EXPECT_EQ(server.ask(get(path)).status, 200) << path;
  for (const char* path :
       {"/v1/models", "/metrics", "/version", "/openapi.json", "/nothing", "/v1/models/m"}) {
    const Response r = server.ask(get(path));
    EXPECT_EQ(r.status, 401) << path;
    EXPECT_EQ(r.headers.at("WWW-Authenticate"), "Bearer");
  }
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/embeddings"})
    EXPECT_EQ(server.ask(post(path, "{}")).status, 401) << path;
  const std::string reset = "POST /reset_prefix_cache HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(server.ask(reset + "\r\n").status, 401);
  EXPECT_EQ(server.ask(reset + "Authorization: Bearer user\r\n\r\n").status, 403);
  EXPECT_EQ(server.ask(reset + "Authorization: Bearer admin\r\n\r\n").status, 200);
  const Response wrong = server.ask(get("/v1/models", "Authorization: Bearer usex\r\n"));
  EXPECT_EQ(
      wrong.body,
      R"({"error":{"message":"Invalid API key","type":"authentication_error","param":null,"code":"invalid_api_key"}})");
  EXPECT_EQ(server.ask(get("/v1/models?key=user")).status, 401);
  EXPECT_EQ(server.ask(get("/v1/models", "Authorization: Bearer user\r\n")).status, 200);
  EXPECT_EQ(server.ask(get("/nothing", "Authorization: Bearer user\r\n")).status, 404);
  EXPECT_EQ(
      server.ask(post("/v1/completions", kGoodBody, "Authorization: Bearer admin\r\n")).status,
      200);
}

TEST(HttpServer, RespondsToItsOwnNamesOnlyWithoutKeys) {
  RecordedServer server;
  const auto host = [&](const std::string& name) {
    return server.ask("GET /v1/models HTTP/1.1\r\nHost: " + name + "\r\n\r\n").status;
  };
  for (const char* name : {"localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000"})
    EXPECT_EQ(host(name), 200) << name;
  for (const char* name :
       {"evil.example", "localhost.evil.example", "evil.example:8000", "127.0.0.1.evil.example",
        "localhost:80@evil.example", "127.evil.example", "[::1].evil.example", "[::1", "10.0.0.1",
        "[::2]:80"})
    EXPECT_EQ(host(name), 403) << name;
  RecordedServerOptions options;
  options.http.insecure = true;
  RecordedServer open(options);
  EXPECT_EQ(open.ask("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 200);
}

TEST(HttpServer, IsNotOpenToAllByMistake) {
  for (const char* host : {"0.0.0.0", "::"}) {
    HttpConfig config;
    config.host = host;
    config.port = 0;
    EXPECT_THROW(HttpServer(config, Routes()), InputError) << host;
  }
  HttpConfig config;
  config.host = "0.0.0.0";
  config.port = 0;
  config.keys = ApiKeys({"k"}, {});
  EXPECT_GT(HttpServer(config, Routes()).port(), 0);
  config.host = "no address";
  EXPECT_THROW(HttpServer(config, Routes()), InputError);
  RecordedServer server;
  HttpConfig taken;
  taken.port = server.port();
  EXPECT_THROW(HttpServer(taken, Routes()), InputError);
}

TEST(HttpServer, ReportsNothingOfItsFaults) {
  HttpConfig config;
  config.port = 0;
  Routes routes;
  routes.add({.method = "GET", .path = "/fault", .handle = [](HttpRequest&) -> HandlerResult {
                throw std::runtime_error("secret of /etc");
              }});
  const HttpServer server(config, routes);
  const Response r = ask(server.port(), get("/fault"));
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(r.headers.at("x-should-retry"), "false");
  EXPECT_EQ(r.body.find("secret"), std::string::npos);
}

// --- slow clients ---

TEST(HttpServer, WaitsForWhoReadsSlowly) {
  HttpConfig config;
  config.port = 0;
  config.limits.stall_time = milliseconds(600);
  constexpr size_t kBytes = 512 << 10;
  Routes routes;
  routes.add({.method = "GET", .path = "/large", .handle = [](HttpRequest&) {
                return HandlerResult{{.body = std::string(kBytes, 'x')}};
              }});
  const HttpServer server(config, routes);
  // For much longer than a peer may stall, and so slowly that the socket buffer stays full
  // meanwhile. Tries again where this thread itself was suspended for that long.
  const auto stalls = [&] {
    RawClient slow(server.port(), 8 << 10);
    slow.send(get("/large", "Connection: close\r\n"));
    auto longest = milliseconds(0);
    for (int i = 0; i < 15; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      if (!slow.receive()) break;
      std::this_thread::sleep_for(milliseconds(200));
      longest = std::max(longest, std::chrono::duration_cast<milliseconds>(
                                      std::chrono::steady_clock::now() - begin));
    }
    const Response r = slow.response();
    if (!r.complete && longest > milliseconds(350)) return true;
    EXPECT_TRUE(r.complete);
    EXPECT_EQ(r.body.size(), kBytes);
    return false;
  };
  int tries = 0;
  while (stalls() && tries < 20) ++tries;
  EXPECT_LT(tries, 20);
  RawClient silent(server.port(), 8 << 10);
  silent.send(get("/large"));
  EXPECT_TRUE(silent.receive());
  EXPECT_TRUE(eventually([&] { return server.counts().connections == 0; }));
}

TEST(HttpServer, SeesWhoLeavesBehindRequestsThatWait) {
  RecordedServer server;
  server.gate.hold();
  {
    RawClient client(server.port());
    client.send(post("/v1/completions", kGoodBody));
    ASSERT_TRUE(eventually([&] { return server.in_engine() == 1; }));
    std::string more;
    while (more.size() < (80 << 10)) more += get("/health/live", std::string("X: y\r\n"));
    client.send(more);
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(server.sequences(), 1);
    client.shut_down_sending();
    EXPECT_TRUE(eventually([&] { return server.sequences() == 0; }));
  }
  server.gate.release();
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(HttpServer, ClosesIdleConnectionsWhenItDrains) {
  RecordedServerOptions options;
  options.http.limits.unasked_time = milliseconds(20);
  RecordedServer server(options);
  RawClient silent(server.port()), idle(server.port()), busy(server.port());
  idle.send(get("/health/live"));
  EXPECT_EQ(idle.response().status, 200);
  const std::string request = post("/v1/completions", kGoodBody);
  busy.send(request.substr(0, 20));
  ASSERT_TRUE(eventually([&] { return server.server->counts().connections == 3; }));
  ASSERT_TRUE(eventually([&] { return busy.is_read(); }));
  EXPECT_TRUE(server.server->drain(milliseconds(kPatienceMs)));
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(idle.is_closed());
  busy.send(request.substr(20));
  const Response r = busy.response();
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("Connection"), "close");
  EXPECT_TRUE(busy.is_closed());
}

// A connection that has had a response is closed at once; others get an error for their first
// request.
TEST(HttpServer, RespondsToAFirstRequestThatComesWhileItDrains) {
  RecordedServerOptions options;
  options.http.limits.unasked_time = milliseconds(kPatienceMs);
  options.http.limits.head_time = milliseconds(2 * kPatienceMs);
  RecordedServer server(options);
  RawClient idle(server.port()), late(server.port());
  idle.send(get("/health/live"));
  EXPECT_EQ(idle.response().status, 200);
  ASSERT_TRUE(eventually([&] { return server.server->counts().connections == 2; }));
  std::this_thread::sleep_for(milliseconds(50));  // until it waits for the request's head
  server.service.admission().close("shutting_down", "the server is shutting down");
  EXPECT_TRUE(server.server->drain(milliseconds(0)));
  EXPECT_TRUE(idle.is_closed());
  std::this_thread::sleep_for(milliseconds(50));  // and it has received the shutdown
  late.send(post("/v1/completions", kGoodBody));
  const Response r = late.response();
  ASSERT_EQ(r.status, 503);
  EXPECT_EQ(error_code_of(r), "shutting_down");
  EXPECT_EQ(r.headers.at("Connection"), "close");
  EXPECT_TRUE(late.is_closed());
}

}  // namespace
}  // namespace trireme::test_server
