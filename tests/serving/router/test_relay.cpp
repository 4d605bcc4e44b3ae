// Memory of a router for requests and responses: within its limits, and released once not needed.
#include <mutex>

#include "serving/router/router.h"
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

TEST(Relay, SaysWhichMethodsThereAre) {
  const OneServer one({});
  const Response r = test::ask(one.port(), get("/tokenize"));
  EXPECT_EQ(r.status, 405);
  EXPECT_EQ(r.headers.at("Allow"), "POST");
}

}  // namespace
}  // namespace trireme::test_relay
