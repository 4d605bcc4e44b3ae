// Every endpoint of the API on a server: handled, routed, guarded and counted as its row defines.
#include <map>
#include <string_view>

#include "serving/api/endpoints/status.h"
#include "serving/http/service/handler.h"
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_service_endpoints {
namespace {

using namespace test;

class NoWeights final : public ModelWeights {
 public:
  Checkpoint served() const override { return {"run/step-1", 1}; }
  Checkpoint stage(const std::string& path) override {
    throw InputError(path + " is no checkpoint");
  }
  void stage_adapter(int32_t, const std::string& path) override {
    throw InputError(path + " is no adapter");
  }
  void forget_adapter(int32_t) override {}
  void use(size_t) override {}
  void drop() override {}
};

std::string request_of(const Endpoint& endpoint, const std::string& key) {
  std::string path = endpoint.path;
  if (path.ends_with("/*")) path.replace(path.size() - 1, 1, "m");
  const bool posts = endpoint.method == std::string_view("POST");
  return concat(endpoint.method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n",
                key.empty() ? "" : concat("Authorization: Bearer ", key, "\r\n"),
                "Connection: close\r\n",
                posts ? "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" : "\r\n");
}

TEST(ServiceEndpoints, HaveOneHandlerEach) {
  std::map<const Endpoint*, int> handled;
  for (const Handler* handler : handlers()) {
    ASSERT_NE(handler->handle, nullptr) << handler->endpoint.path;
    ++handled[&handler->endpoint];
  }
  for (const Endpoint* endpoint : endpoints()) EXPECT_EQ(handled[endpoint], 1) << endpoint->path;
  EXPECT_EQ(handled.size(), endpoints().size());
}

class ServedEndpoints : public testing::Test {
 protected:
  static RecordedServerOptions options(ModelWeights& weights) {
    RecordedServerOptions options;
    options.weights = &weights;
    options.adapters = 1;
    options.http.keys = ApiKeys({"user"}, {"admin"});
    return options;
  }
  Response ask(const Endpoint& endpoint, const std::string& key) const {
    return server.ask(request_of(endpoint, key));
  }
  NoWeights weights;
  RecordedServer server{options(weights)};
};

TEST_F(ServedEndpoints, HaveTheAccessOfTheirRows) {
  for (const Endpoint* endpoint : endpoints()) {
    const int without = ask(*endpoint, "").status, user = ask(*endpoint, "user").status;
    const bool is_open = endpoint->access == Access::kOpen;
    const bool is_user = endpoint->access == Access::kUser;
    EXPECT_EQ(without == 401, !is_open) << endpoint->path << " " << without;
    EXPECT_EQ(user == 403, !is_open && !is_user) << endpoint->path << " " << user;
    // An empty body lacks required fields, or names a checkpoint that does not exist.
    const bool reads_body = endpoint->fields != nullptr;
    EXPECT_EQ(ask(*endpoint, "admin").status, reads_body ? 400 : 200) << endpoint->path;
  }
}

TEST_F(ServedEndpoints, HaveTheContentTypeOfTheirRows) {
  int succeeded = 0;
  for (const Endpoint* endpoint : endpoints()) {
    const Response response = ask(*endpoint, "admin");
    if (response.status != 200) continue;
    ++succeeded;
    EXPECT_EQ(response.headers.at("Content-Type"), endpoint->content_type) << endpoint->path;
  }
  EXPECT_GT(succeeded, 8);
}

TEST_F(ServedEndpoints, AreLabelsOfTheRequestCounter) {
  for (const Endpoint* endpoint : endpoints()) {
    (void)ask(*endpoint, "admin");
    // A request is counted after its response is sent.
    EXPECT_TRUE(eventually([&] {
      const std::string metrics = ask(kMetricsEndpoint, "admin").body;
      return metrics.find(concat("handler=\"", endpoint->path, "\"")) != std::string::npos;
    })) << endpoint->path;
  }
}

TEST_F(ServedEndpoints, AreRefusedBeforeTheirBodyWhereTheyAreAdmitted) {
  server.service.admission().close("shutting_down", "the server is shutting down");
  for (const Endpoint* endpoint : endpoints()) {
    if (endpoint->method != std::string_view("POST") || endpoint->access != Access::kUser) continue;
    // The body "{}" lacks required fields: 400 where it is read.
    EXPECT_EQ(ask(*endpoint, "user").status, endpoint->is_admitted ? 503 : 400) << endpoint->path;
  }
}

}  // namespace
}  // namespace trireme::test_service_endpoints
