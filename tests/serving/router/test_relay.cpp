// Relays of requests: their memory stays within its limits and is released once not needed, and no
// request is sent again once its response has begun.
#include <mutex>

#include "serving/router/router.h"
#include "tests/serving/client/scripted_server.h"
#include "tests/serving/http/server/raw_client.h"

namespace trireme::test_relay {
namespace {

using namespace test;

// Releases the second event of a stream.
class Release {
 public:
  void wait(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void go() {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    if (wake_) std::exchange(wake_, nullptr)();
  }
  bool gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
  bool gone_ = false;
};

class HeldStream final : public ResponseProducer {
 public:
  explicit HeldStream(Release& release) : release_(release) {}
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() override { release_.wait(nullptr); }
  void start(std::function<void()> wake) override { release_.wait(std::move(wake)); }
  Part take() override {
    if (!std::exchange(begun_, true)) return {.events = "data: first\n\n"};
    if (!release_.gone()) return {};
    return {.events = "data: last\n\n", .done = true};
  }
  std::string error_event(const ApiError&) const override { return "data: error\n\n"; }

 private:
  Release& release_;
  bool begun_ = false;
};

// Router before one server: /v1/bytes/N returns N bytes, /v1/event/N an event of N bytes,
// /v1/stream one event and, once released, another one.
class OneServer {
 public:
  explicit OneServer(const RelayedResponseLimits& responses, const HttpLimits& limits = {}) {
    Routes routes;
    routes.add({.method = "GET", .path = "/health/ready", .handle = [](HttpRequest&) {
                  return HandlerResult{{.body = "{}"}};
                }});
    const auto add = [&](const std::string& path, const char* type) {
      routes.add({.method = "POST", .path = path + "*", .handle = [=](HttpRequest& request) {
                    const size_t bytes = std::stoul(request.head.path.substr(path.size()));
                    return HandlerResult{{.body = std::string(bytes, 'x'), .content_type = type}};
                  }});
    };
    add("/v1/bytes/", "text/plain");
    add("/v1/event/", "text/event-stream");
    routes.add({.method = "POST", .path = "/v1/stream", .handle = [this](HttpRequest&) {
                  return HandlerResult{{}, std::make_unique<HeldStream>(release)};
                }});
    server_ = std::make_unique<HttpServer>(HttpConfig{.port = 0}, std::move(routes));
    router_ = std::make_unique<Router>(RouterConfig{
        .servers = {parse_server_address(concat("http://127.0.0.1:", server_->port()), "server")},
        .health_timeout = std::chrono::seconds(60),
        .responses = responses});
    front_ =
        std::make_unique<HttpServer>(HttpConfig{.port = 0, .limits = limits}, router_->routes());
    EXPECT_TRUE(router_->wait_for_a_server(std::chrono::seconds(60)));
  }
  ~OneServer() {
    release.go();
    front_.reset();
    router_.reset();
    server_.reset();
  }
  int port() const { return front_->port(); }
  Response ask(const std::string& path, const std::string& body = "{}") const {
    return test::ask(port(), post(path, body));
  }

  Release release;

 private:
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<HttpServer> front_;
};

TEST(Relay, HoldsOnlySoMuchOfAllResponses) {
  const OneServer one({.whole = 400'000, .always = 20'000, .all = 100'000});
  const auto is_passed_on = [&] {
    const Response r = one.ask("/v1/bytes/110000");
    return r.status == 200 && r.body.size() == 110'000;
  };
  // The memory of a response is released shortly after it.
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(eventually(is_passed_on)) << i;
  for (const char* path : {"/v1/bytes/150000", "/v1/event/150000"}) {
    const Response r = one.ask(path);
    EXPECT_EQ(r.status, 503) << path;
    EXPECT_NE(r.body.find("server_overloaded"), std::string::npos) << r.body;
    EXPECT_EQ(r.headers.at("Retry-After"), "1");
  }
  EXPECT_TRUE(eventually(is_passed_on));
}

// The router must not choose the server whose adapters are changed.
TEST(Relay, LeavesAdministrationToTheServersThemselves) {
  const OneServer one({});
  for (const char* path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
    const Response r = one.ask(path);
    EXPECT_EQ(r.status, 404) << path;
    EXPECT_NE(r.body.find("is not relayed"), std::string::npos) << r.body;
  }
}

TEST(Relay, HoldsOnlySoMuchOfAResponse) {
  const OneServer one({.whole = 100'000, .always = 20'000, .all = 400'000});
  for (const char* path : {"/v1/bytes/150000", "/v1/event/150000"}) {
    const Response r = one.ask(path);
    EXPECT_EQ(r.status, 502) << path;
    EXPECT_NE(r.body.find("answer_too_large"), std::string::npos) << r.body;
  }
  EXPECT_EQ(one.ask("/v1/bytes/100000").status, 200);
}

TEST(Relay, ABodyThatIsForgottenTakesNoMemory) {
  const auto budget = std::make_shared<ByteBudget>(1 << 20);
  HttpRequest request;
  request.body.assign(1 << 20, 'x');
  request.share = ByteShare(budget);
  ASSERT_TRUE(request.share.grow(1 << 20));
  request.forget_body();
  EXPECT_LT(request.body.capacity(), 100u);
  EXPECT_EQ(budget->left(), 1 << 20);
}

TEST(Relay, ForgetsABodyOnceTheResponseHasBegun) {
  OneServer one({}, {.all_bodies = 300});
  const std::string body = R"({"prompt":")" + std::string(200, 'x') + "\"}";
  RawClient stream(one.port());
  stream.send(post("/v1/stream", body));
  ASSERT_TRUE(stream.receive_until("data: first\n\n"));
  EXPECT_TRUE(eventually([&] { return one.ask("/v1/bytes/1", body).status == 200; }));
  one.release.go();
  EXPECT_TRUE(stream.receive_until("data: last\n\n"));
}

// Router before `count` servers that share a script.
class ScriptedServers {
 public:
  ScriptedServers(int count, std::vector<ScriptedResponse> responses)
      : script(std::make_shared<ResponseScript>(std::move(responses))) {
    RouterConfig config{.health_timeout = std::chrono::seconds(60)};
    for (int i = 0; i < count; ++i) {
      servers_.push_back(std::make_unique<ScriptedServer>(script));
      config.servers.push_back(servers_.back()->address());
    }
    router_ = std::make_unique<Router>(config);
    front_ = std::make_unique<HttpServer>(HttpConfig{.port = 0}, router_->routes());
    const auto up = [&] {
      const std::string series = metrics();
      int up_now = 0;
      for (const ServerAddress& server : config.servers)
        up_now += series.find(concat("trireme:router_server_up{server=\"", server.url(),
                                     "\"} 1")) != std::string::npos;
      return up_now == count;
    };
    EXPECT_TRUE(eventually(up));
  }
  ~ScriptedServers() {
    front_.reset();
    router_.reset();
  }
  ScriptedServers(const ScriptedServers&) = delete;
  ScriptedServers& operator=(const ScriptedServers&) = delete;
  Response ask() const { return test::ask(front_->port(), post("/v1/completions", "{}")); }
  std::string metrics() const { return test::ask(front_->port(), get("/metrics")).body; }

  const std::shared_ptr<ResponseScript> script;

 private:
  std::vector<std::unique_ptr<ScriptedServer>> servers_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<HttpServer> front_;
};

constexpr char kGood[] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
constexpr char kStreamHead[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST(Relay, SendsNothingAgainOnceAResponseHasBegun) {
  const std::string stream = kStreamHead;
  for (const std::string& bytes :
       {std::string("H"), std::string("HTTP/1.1 200 OK\r\nContent-Le"),
        std::string("HTTP/1.1 100 Continue\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc"), stream,
        stream + "9\r\ndata: on\r\n"}) {
    for (const int count : {1, 2}) {
      const ScriptedServers servers(count, {{bytes, true}, {kGood}});
      const Response r = servers.ask();
      EXPECT_EQ(r.status, 502) << bytes;
      EXPECT_NE(r.body.find("server_lost"), std::string::npos) << r.body;
      EXPECT_NE(r.body.find("broke off or was invalid"), std::string::npos) << r.body;
      EXPECT_FALSE(r.headers.contains("Retry-After")) << bytes;
      EXPECT_EQ(servers.script->requests(), 1) << bytes;
    }
  }
}

TEST(Relay, EndsAStreamThatBreaksOffWithAnErrorEvent) {
  const ScriptedServers servers(
      2, {{std::string(kStreamHead) + "11\r\ndata: the first\n\n\r\n", true}, {kGood}});
  const Response r = servers.ask();
  EXPECT_EQ(r.status, 200);
  EXPECT_TRUE(r.body.starts_with("data: the first\n\ndata: {\"error\":")) << r.body;
  EXPECT_NE(r.body.find("server_lost"), std::string::npos) << r.body;
  EXPECT_EQ(servers.script->requests(), 1);
}

// A 503 is a refusal, however much of it arrives.
TEST(Relay, SendsToAnotherServerWhatNoneHasBegunToAnswer) {
  for (const char* bytes : {"", "HTTP/1.1 503 Full\r\nContent-Length: 0\r\n\r\n",
                            "HTTP/1.1 503 Full\r\nContent-Length: 10\r\n\r\nabc"}) {
    const ScriptedServers servers(2, {{bytes, true}, {kGood}});
    const Response r = servers.ask();
    EXPECT_EQ(r.status, 200) << bytes;
    EXPECT_EQ(r.body, "good") << bytes;
    EXPECT_EQ(servers.script->requests(), 2) << bytes;
  }
  const ScriptedServers alone(1, {{"", true}, {kGood}});
  const Response r = alone.ask();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers.at("Retry-After"), "1");
}

// On a connection that is reused, the request is first sent again to the same server.
TEST(Relay, SendsAgainOnAReusedConnectionOnlyBeforeAResponse) {
  const ScriptedServers closes(1, {{kGood}, {"", true}, {kGood}});
  EXPECT_EQ(closes.ask().status, 200);
  EXPECT_EQ(closes.ask().status, 200);
  EXPECT_EQ(closes.script->requests(), 3);
  const ScriptedServers breaks(1, {{kGood}, {"HTTP/1.1 200 O", true}, {kGood}});
  EXPECT_EQ(breaks.ask().status, 200);
  EXPECT_EQ(breaks.ask().status, 502);
  EXPECT_EQ(breaks.script->requests(), 2);
}

TEST(Relay, SaysWhichMethodsThereAre) {
  const OneServer one({});
  const Response r = test::ask(one.port(), get("/tokenize"));
  EXPECT_EQ(r.status, 405);
  EXPECT_EQ(r.headers.at("Allow"), "POST");
}

}  // namespace
}  // namespace trireme::test_relay
