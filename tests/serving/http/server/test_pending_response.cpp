// Streaming responses, whatever part their end comes with.
#include <condition_variable>
#include <mutex>
#include <set>

#include "serving/http/server/exchange.h"
#include "serving/http/server/server.h"
#include "tests/serving/http/server/raw_client.h"

namespace trireme::test_pending_response {
namespace {

// Returns the given parts in turn.
class Parts final : public ResponseProducer {
 public:
  Parts(std::vector<Part> parts, std::atomic<int>& failures)
      : parts_(std::move(parts)), failures_(failures) {}
  void start(std::function<void()> wake) override {
    if (parts_.empty()) throw std::runtime_error("a secret");
    wake_ = std::move(wake);
  }
  Part take() override {
    if (next_ == parts_.size()) throw std::runtime_error("a secret");
    Part part = parts_.at(next_++);
    if (!part.done) wake_();
    return part;
  }
  void failed() noexcept override { ++failures_; }
  std::string error_event(const ApiError& error) const override {
    return concat("data: ", error.error_code(), "\n\n");
  }

 private:
  std::vector<Part> parts_;
  std::atomic<int>& failures_;
  size_t next_ = 0;
  std::function<void()> wake_;
};

// failures: how often the response is notified of its failure.
std::string response(const std::vector<ResponseProducer::Part>& parts, int failures = 0) {
  std::atomic<int> failed = 0;
  Routes routes;
  routes.add({.method = "GET", .path = "/", .handle = [&](HttpRequest&) {
                return HandlerResult{{}, std::make_unique<Parts>(parts, failed)};
              }});
  HttpServer server({.port = 0}, std::move(routes));
  const test::Response response =
      test::ask(server.port(), "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(failed, failures);
  return response.complete ? response.body : "incomplete: " + response.body;
}

TEST(ResponseProducer, AStreamEndsWithItsLastEventOrAfterIt) {
  EXPECT_EQ(response({{.events = "data: a\n\n"}, {.events = "data: b\n\n", .done = true}}),
            "data: a\n\ndata: b\n\n");
  EXPECT_EQ(response({{.events = "data: a\n\n"}, {.events = "data: b\n\n"}, {.done = true}}),
            "data: a\n\ndata: b\n\n");
  EXPECT_EQ(response({{.whole = HttpResponse{.body = "whole"}, .done = true}}), "whole");
}

// The client receives an error without the exception's text.
TEST(ResponseProducer, WhatItThrowsIsAnError) {
  EXPECT_EQ(response({{.events = "data: a\n\n"}}, 1), "data: a\n\ndata: internal_error\n\n");
  for (const std::vector<ResponseProducer::Part>& parts :
       {std::vector<ResponseProducer::Part>{}, std::vector<ResponseProducer::Part>{{}}}) {
    const std::string body = response(parts, 1);
    EXPECT_NE(body.find(R"("code":"internal_error")"), std::string::npos) << body;
    EXPECT_EQ(body.find("secret"), std::string::npos) << body;
  }
}

// Parts whose work ends, or starts, on another thread.
struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false, begun = false;
  std::set<std::thread::id> takes, works;
  void work() {
    std::unique_lock lock(mutex);
    works.insert(std::this_thread::get_id());
    begun = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !held; });
  }
  bool has_begun() {
    const std::lock_guard lock(mutex);
    return begun;
  }
  void release() {
    const std::lock_guard lock(mutex);
    held = false;
    changed.notify_all();
  }
};

class Working final : public ResponseProducer {
 public:
  Working(Seen& seen, std::atomic<int>& alive) : seen_(seen), alive_(alive) { ++alive_; }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working() override { --alive_; }
  void start(std::function<void()>) override {}
  Part take() override {
    {
      const std::lock_guard lock(seen_.mutex);
      seen_.takes.insert(std::this_thread::get_id());
    }
    return body_.part(kQuickBytes + 1, [this] {
      seen_.work();
      return std::string(200'000, 'b');
    });
  }
  std::string error_event(const ApiError&) const override { return "data: error\n\n"; }

 private:
  Seen& seen_;
  std::atomic<int>& alive_;
  WholeBody body_;
};

class PendingWork : public testing::Test {
 protected:
  PendingWork() {
    Routes routes;
    routes.add({.method = "GET", .path = "/", .handle = [this](HttpRequest&) {
                  return HandlerResult{{}, std::make_unique<Working>(seen, alive)};
                }});
    server = std::make_unique<HttpServer>(HttpConfig{.port = 0}, std::move(routes));
  }
  ~PendingWork() override { seen.release(); }
  static std::string request(const char* more = "") {
    return concat("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", more, "\r\n");
  }

  Seen seen;
  std::atomic<int> alive = 0;
  std::unique_ptr<HttpServer> server;
};

TEST_F(PendingWork, IsDoneByAWorker) {
  const test::Response response = test::ask(server->port(), request());
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, std::string(200'000, 'b'));
  EXPECT_EQ(seen.works.size(), 1u);
  for (const std::thread::id& id : seen.works) EXPECT_FALSE(seen.takes.contains(id));
}

TEST_F(PendingWork, KeepsNobodyWhoLeaves) {
  seen.held = true;
  {
    test::RawClient client(server->port());
    client.send(request());
    ASSERT_TRUE(test::eventually([&] { return seen.has_begun(); }));
  }
  EXPECT_TRUE(test::eventually([&] { return server->counts().exchanges == 0; }));
  EXPECT_EQ(alive, 1);  // while it is in use
  seen.release();
  EXPECT_TRUE(test::eventually([&] { return alive == 0; }));
}

TEST_F(PendingWork, HasNoMoreTimeThanItsRequest) {
  seen.held = true;
  const test::Response response =
      test::ask(server->port(), request("X-Request-Timeout-Ms: 100\r\n"));
  EXPECT_EQ(response.status, 504);
  seen.release();
  EXPECT_TRUE(test::eventually([&] { return alive == 0; }));
}

TEST(ResponseProducer, WorkThatFailsIsAnError) {
  const ResponseProducer::Part work{.work = [] { throw std::runtime_error("a secret"); }};
  const std::string body =
      response({work, {.whole = HttpResponse{.body = "whole"}, .done = true}}, 1);
  EXPECT_NE(body.find(R"("code":"internal_error")"), std::string::npos) << body;
  EXPECT_EQ(body.find("secret"), std::string::npos) << body;
}

}  // namespace
}  // namespace trireme::test_pending_response
