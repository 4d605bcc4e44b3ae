// The list of endpoints and the two documents that are made of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "serving/api/endpoint.h"
#include "serving/api/openapi.h"
#include "serving/api/reference.h"

namespace trireme::test_endpoints {
namespace {

using Json = nlohmann::ordered_json;

std::string method_key(const Endpoint& endpoint) {
  return endpoint.method == std::string("POST") ? "post" : "get";
}

TEST(Endpoints, AreListedOnceByMethodAndPath) {
  std::set<std::string> seen;
  for (const Endpoint* endpoint : endpoints()) {
    const std::string method = endpoint->method;
    EXPECT_TRUE(method == "GET" || method == "POST") << method;
    EXPECT_EQ(endpoint->path[0], '/');
    EXPECT_TRUE(seen.insert(concat(method, " ", endpoint->path)).second) << endpoint->path;
  }
  EXPECT_EQ(seen.size(), 18u);
}

// Who may use what changes only on purpose.
TEST(Endpoints, DeclareTheirAccess) {
  const std::set<std::string> open = {"/health", "/health/live", "/health/ready"};
  const std::set<std::string> admin = {"/admin/weights", "/v1/load_lora_adapter",
                                       "/v1/unload_lora_adapter", "/reset_prefix_cache"};
  for (const Endpoint* endpoint : endpoints()) {
    const std::string path = endpoint->path;
    const Access expected = open.contains(path)    ? Access::kOpen
                            : admin.contains(path) ? Access::kAdmin
                            : path == "/metrics"   ? Access::kMetrics
                                                   : Access::kUser;
    EXPECT_EQ(endpoint->access, expected) << path;
  }
}

TEST(Endpoints, AreDocumented) {
  const Json document = Json::parse(openapi_document("1"));
  const std::string reference = api_reference();
  size_t documented = 0, operations = 0;
  for (const Endpoint* endpoint : endpoints()) {
    const std::string section = concat("## ", endpoint->path, "\n");
    EXPECT_EQ(reference.find(section) != std::string::npos,
              std::string(endpoint->path) == "/admin/weights" || endpoint->fields != nullptr)
        << endpoint->path;
    if (endpoint->fields != nullptr) {
      EXPECT_NE(*endpoint->summary, '\0') << endpoint->path;
    }
    if (*endpoint->summary == '\0') continue;
    ++documented;
    const Json& operation = document.at("paths").at(endpoint->path).at(method_key(*endpoint));
    EXPECT_EQ(operation.at("summary"), endpoint->summary);
    EXPECT_EQ(operation.contains("requestBody"), endpoint->fields != nullptr) << endpoint->path;
    EXPECT_EQ(operation.contains("security"), endpoint->access == Access::kOpen) << endpoint->path;
    const Json& content = operation.at("responses").at("200").at("content");
    EXPECT_TRUE(content.contains(endpoint->content_type)) << endpoint->path;
    EXPECT_EQ(content.contains("text/event-stream"), endpoint->streams) << endpoint->path;
  }
  for (const auto& [path, methods] : document.at("paths").items()) operations += methods.size();
  EXPECT_EQ(operations, documented);
}

}  // namespace
}  // namespace trireme::test_endpoints
