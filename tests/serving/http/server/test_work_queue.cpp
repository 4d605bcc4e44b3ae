// Work outside of the connections' threads: which requests wait for a worker, how many, and how
// long.
#include <functional>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_work_queue {
namespace {

using namespace test;
using std::chrono::milliseconds;

// Server with one worker, whose route /wait blocks.
class OneWorker {
 public:
  explicit OneWorker(const HttpLimits& limits = {}) {
    HttpConfig config;
    config.port = 0;
    config.workers = 1;
    config.limits = limits;
    Routes routes;
    routes.add({.method = "POST", .path = "/wait", .handle = [this](HttpRequest&) {
                  ++begun;
                  gate.pass();
                  return HandlerResult{{.body = "{}"}};
                }});
    routes.add({.method = "GET",
                .path = "/quick",
                .handle = [](HttpRequest&) { return HandlerResult{{.body = "{}"}}; },
                .is_quick = true});
    gate.hold();
    server = std::make_unique<HttpServer>(config, routes);
  }
  ~OneWorker() {
    gate.release();
    server.reset();
  }
  std::unique_ptr<RawClient> wait(size_t bytes = 2, const std::string& headers = "") const {
    auto client = std::make_unique<RawClient>(server->port());
    client->send(post("/wait", std::string(bytes, 'x'), headers));
    return client;
  }
  bool has_waiting(int64_t wanted) const {
    return eventually([&] { return server->counts().waiting == wanted; });
  }

  std::atomic<int> begun{0};
  Gate gate;
  std::unique_ptr<HttpServer> server;
};

TEST(Workers, DelayNothingThatIsQuick) {
  OneWorker one;
  const auto busy = one.wait(), waiting = one.wait();
  ASSERT_TRUE(one.has_waiting(1));
  EXPECT_EQ(ask(one.server->port(), get("/quick")).status, 200);
  one.gate.release();
  EXPECT_EQ(busy->response().status, 200);
  EXPECT_EQ(waiting->response().status, 200);
}

TEST(Workers, HaveOnlySoMuchWait) {
  HttpLimits limits;
  limits.work = {.jobs = 2, .bytes = 100};
  OneWorker one(limits);
  const auto busy = one.wait(1000);
  ASSERT_TRUE(eventually([&] { return one.begun == 1; }));
  const auto first = one.wait(60);
  ASSERT_TRUE(one.has_waiting(1));
  const Response large = one.wait(41)->response();
  EXPECT_EQ(large.status, 503);
  EXPECT_EQ(error_code_of(large), "server_overloaded");
  EXPECT_EQ(large.headers.at("Retry-After"), "1");
  const auto second = one.wait(40);
  ASSERT_TRUE(one.has_waiting(2));
  EXPECT_EQ(one.wait(0)->response().status, 503);
  one.gate.release();
  for (const auto* client : {&busy, &first, &second}) EXPECT_EQ((*client)->response().status, 200);
}

TEST(Workers, ForgetWhoeverLeaves) {
  HttpLimits limits;
  limits.all_bodies = 300;
  OneWorker one(limits);
  const auto busy = one.wait(100);
  ASSERT_TRUE(eventually([&] { return one.begun == 1; }));
  auto leaving = one.wait(150);
  ASSERT_TRUE(one.has_waiting(1));
  EXPECT_EQ(one.wait(150)->response().status, 503);
  leaving.reset();
  ASSERT_TRUE(one.has_waiting(0));
  const auto next = one.wait(150);  // its memory is released although no worker has handled it
  ASSERT_TRUE(one.has_waiting(1));
  one.gate.release();
  EXPECT_EQ(busy->response().status, 200);
  EXPECT_EQ(next->response().status, 200);
  EXPECT_EQ(one.begun, 2);
}

// Both while waiting for a worker and while a worker runs it.
TEST(Workers, KeepNobodyBeyondItsTime) {
  OneWorker one;
  std::unique_ptr<RawClient> busy;
  for (int tries = 0; tries < 50 && one.begun == 0; ++tries) {  // it may time out before
    busy = one.wait(2, "X-Request-Timeout-Ms: 500\r\n");
    ASSERT_TRUE(eventually([&] { return one.begun == 1 || busy->has_more(); }));
  }
  ASSERT_EQ(one.begun, 1);
  auto waiting = one.wait(2, "X-Request-Timeout-Ms: 50\r\n");
  for (const auto* client : {&busy, &waiting}) {
    const Response late = (*client)->response();
    EXPECT_EQ(late.status, 504);
    EXPECT_EQ(error_code_of(late), "deadline_exceeded");
  }
  ASSERT_TRUE(one.has_waiting(0));
  EXPECT_EQ(one.begun, 1);
  one.gate.release();
  busy->send(post("/wait", "{}", "X-Request-Timeout-Ms: 20000\r\n"));
  EXPECT_EQ(busy->response().status, 200);
  EXPECT_EQ(one.begun, 2);
}

// Queue with this many threads; its first jobs all block.
class HeldQueue {
 public:
  HeldQueue(int threads, const WorkLimits& limits) : queue(threads, limits) {
    gate.hold();
    for (int i = 0; i < threads; ++i) push("", 0, "");
    EXPECT_TRUE(eventually([&] { return begun == threads && queue.waiting() == 0; }));
  }
  ~HeldQueue() { gate.release(); }
  bool push(const std::string& tenant, int64_t bytes, const std::string& name) {
    return static_cast<bool>(queue.push(tenant, bytes, [this, name] {
      ++begun;
      gate.pass();
      const std::lock_guard lock(mutex);
      order += name;
    }));
  }
  std::string ran(size_t jobs) {
    gate.release();
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      return order.size() == jobs;
    }));
    return order;
  }

  Gate gate;
  std::atomic<int> begun{0};
  std::mutex mutex;
  std::string order;
  WorkQueue queue;
};

TEST(Workers, ServeKeysInTurn) {
  HeldQueue held(1, {});
  for (const char* name : {"1", "2", "3", "4"}) EXPECT_TRUE(held.push("a", 10, name));
  EXPECT_TRUE(held.push("b", 10, "x"));
  EXPECT_TRUE(held.push("c", 10, "y"));
  EXPECT_EQ(held.ran(6), "1xy234");
}

TEST(Workers, LeaveKeysTheirShare) {
  HeldQueue held(1, {.jobs = 8, .bytes = 100});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(held.push("a", 10, "a"));
  EXPECT_FALSE(held.push("a", 1, "-"));  // four of eight
  EXPECT_TRUE(held.push("b", 50, "b"));
  EXPECT_FALSE(held.push("b", 1, "-"));  // fifty of a hundred
  EXPECT_TRUE(held.push("c", 10, "c"));  // the first job of a key, while there is room
  EXPECT_FALSE(held.push("d", 10, "-"));
  EXPECT_EQ(held.ran(6), "abcaaa");
}

// Also without API keys: small bodies are read while a large one is.
TEST(Workers, ReadLargeBodiesOnAllThreadsButOne) {
  Gate gate;
  gate.hold();
  std::atomic<int> large{0};
  HeldQueue held(2, {.large = 100});
  for (int i = 0; i < 3; ++i)
    held.queue.push("", 101, [&] {
      ++large;
      gate.pass();
    });
  held.push("", 100, "s");
  EXPECT_EQ(held.ran(1), "s");
  EXPECT_TRUE(eventually([&] { return large == 1; }));
  EXPECT_EQ(held.queue.waiting(), 2);
  gate.release();
  EXPECT_TRUE(eventually([&] { return large == 3; }));
}

}  // namespace
}  // namespace trireme::test_work_queue
