// The list of endpoints and the two documents generated from it.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "serving/api/api_error.h"
#include "serving/api/endpoint.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/api/endpoints/detokenize.h"
#include "serving/api/endpoints/embeddings.h"
#include "serving/api/endpoints/lora_adapters.h"
#include "serving/api/endpoints/tokenize.h"
#include "serving/api/endpoints/weights.h"
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

// Access rights change only on purpose.
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

// Every field with values that break parsers: accepted or refused, nothing else.
TEST(Endpoints, SurviveAnyValueInAnyField) {
  const std::vector<std::string> values = {"null",
                                           "true",
                                           "0",
                                           "1",
                                           "-1",
                                           "1.5",
                                           "-0",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "-9223372036854775808",
                                           "1e308",
                                           "123456789012345678901234567890",
                                           "[-123456789012345678901234567890]",
                                           "{\"0\":123456789012345678901234567890}",
                                           "\"\"",
                                           "\"x\"",
                                           "\"\\u0000\"",
                                           "[]",
                                           "[[]]",
                                           "[0]",
                                           "[\"x\"]",
                                           "[{}]",
                                           "[null]",
                                           "{}",
                                           "{\"type\":\"function\"}",
                                           "{\"type\":null}",
                                           "{\"\":{}}",
                                           "{\"0\":0}",
                                           "[[[[[[]]]]]]"};
  // A parser for each endpoint with a body, and a body with its required fields.
  struct Parser {
    std::function<void(const std::string&)> parse;
    std::string body;
  };
  const std::map<std::string, Parser> parsers = {
      {"/v1/completions",
       {[](const std::string& b) { parse_completion(b); }, R"({"model":"m","prompt":"p"})"}},
      {"/v1/chat/completions",
       {[](const std::string& b) { parse_chat(b); },
        R"({"model":"m","messages":[{"role":"user","content":"x"}]})"}},
      {"/v1/embeddings",
       {[](const std::string& b) { parse_embeddings(b); }, R"({"model":"m","input":"p"})"}},
      {"/tokenize", {[](const std::string& b) { parse_tokenize(b); }, R"({"model":"m"})"}},
      {"/detokenize",
       {[](const std::string& b) { parse_detokenize(b); }, R"({"model":"m","tokens":[1]})"}},
      {"/admin/weights", {[](const std::string& b) { parse_weights(b); }, R"({"model":"m"})"}},
      {"/v1/load_lora_adapter",
       {[](const std::string& b) { parse_load_adapter(b); },
        R"({"lora_name":"a","lora_path":"b"})"}},
      {"/v1/unload_lora_adapter",
       {[](const std::string& b) { parse_unload_adapter(b); }, R"({"lora_name":"a"})"}}};
  int refused = 0;
  for (const Endpoint* endpoint : endpoints()) {
    if (endpoint->fields == nullptr) continue;
    ASSERT_TRUE(parsers.contains(endpoint->path)) << endpoint->path;
    const Parser& parser = parsers.at(endpoint->path);
    for (const Field& field : endpoint->fields()) {
      for (const std::string& value : values) {
        Json body = Json::parse(parser.body);
        body[field.name] = "VALUE";
        std::string text = body.dump();
        text.replace(text.find("\"VALUE\""), 7, value);
        try {
          parser.parse(text);
        } catch (const ApiError& error) {
          EXPECT_TRUE(error.status() == 400 || error.status() == 501) << text;
          EXPECT_NE(error.param(), "") << text << error.what();
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace trireme::test_endpoints
