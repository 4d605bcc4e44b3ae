#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "serving/api/api_error.h"
#include "serving/api/endpoint.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/json_writer.h"
#include "serving/api/openapi.h"
#include "serving/api/reference.h"
#include "serving/api/small_bodies.h"
#include "tests/support/source_folder.h"

namespace trireme::test_small_bodies {
namespace {

using Json = nlohmann::ordered_json;

// Expected bytes: param and code are quoted strings, or null.
std::string expected_error(const std::string& message, const std::string& type,
                           const std::string& param, const std::string& code) {
  return concat(R"({"error":{"message":")", message, R"(","type":")", type, R"(","param":)", param,
                R"(,"code":)", code, "}}");
}

TEST(Bodies, HaveTheErrorsOfOpenAi) {
  EXPECT_EQ(
      error_body(ApiError(400, "n must be <= 128", "n", "invalid_value")),
      expected_error("n must be <= 128", "invalid_request_error", R"("n")", R"("invalid_value")"));
  EXPECT_EQ(
      error_body(ApiError(429, "queue full (64 waiting)", "", "queue_full")),
      expected_error("queue full (64 waiting)", "rate_limit_error", "null", R"("queue_full")"));
  EXPECT_EQ(
      error_body(ApiError(401, "Invalid API key", "", "invalid_api_key")),
      expected_error("Invalid API key", "authentication_error", "null", R"("invalid_api_key")"));
  EXPECT_EQ(error_body(500, "rank 3 lost", "engine_failure"),
            expected_error("rank 3 lost", "server_error", "null", R"("engine_failure")"));
  EXPECT_STREQ(error_type(404), "invalid_request_error");
  EXPECT_STREQ(error_type(403), "permission_error");
}

TEST(Bodies, CutAndRepairMessages) {
  const Json error = Json::parse(error_body(400, std::string(5000, 'x') + "\xFF", "c"))["error"];
  EXPECT_EQ(error["message"].get<std::string>().size(), 1003u);
  EXPECT_EQ(Json::parse(error_body(400,
                                   "a\xFF"
                                   "b",
                                   "c"))["error"]["message"],
            "a\xEF\xBF\xBD"
            "b");
}

TEST(Bodies, EscapeWhatJsonWantsEscaped) {
  std::string text = "\"\\/\b\f\n\r\t\x01\x1f\x7f\xC3\xA9";
  text += '\0';
  std::string out;
  JsonWriter(out).string(text);
  EXPECT_EQ(Json::parse(out).get<std::string>(), text);
  out.clear();
  JsonWriter(out)
      .begin_array()
      .integer(-5)
      .number(0.1)
      .boolean(true)
      .null()
      .begin_object()
      .end_object()
      .begin_array()
      .end_array()
      .end_array();
  EXPECT_EQ(out, "[-5,0.1,true,null,{},[]]");
}

TEST(Bodies, ListModels) {
  const std::vector<ModelCard> cards = {
      {.id = "m", .created = 5, .max_model_len = 9, .root = "dir"}};
  EXPECT_EQ(
      model_list_body(cards),
      R"({"object":"list","data":[{"id":"m","object":"model","created":5,"owned_by":"trireme",)"
      R"("root":"dir","parent":null,"max_model_len":9}]})");
}

TEST(Bodies, TellTokens) {
  const std::vector<int32_t> tokens = {1, 2};
  EXPECT_EQ(tokenize_body(tokens, 9, {}),
            R"({"count":2,"max_model_len":9,"tokens":[1,2],"token_strs":null})");
  const auto spelling = [](int32_t token) { return token == 1 ? "a" : "b"; };
  EXPECT_EQ(tokenize_body(tokens, 9, spelling),
            R"({"count":2,"max_model_len":9,"tokens":[1,2],"token_strs":["a","b"]})");
  EXPECT_EQ(detokenize_body("x"), R"({"prompt":"x"})");
}

TEST(OpenApi, DescribesEveryFieldThatIsRead) {
  const Json document = Json::parse(openapi_document("1.2"));
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["info"]["version"], "1.2");
  size_t fields = 0;
  for (const Endpoint* endpoint : endpoints()) {
    if (endpoint->fields == nullptr) continue;
    const Json& operation = document["paths"][endpoint->path]["post"];
    const Json& schema = operation["requestBody"]["content"]["application/json"]["schema"];
    for (const Field& field : endpoint->fields()) {
      const bool told = field.status == FieldStatus::kRead || field.status == FieldStatus::kIgnored;
      EXPECT_EQ(schema["properties"].contains(field.name), told) << field.name;
      EXPECT_NE(field.help, "") << field.name;
      ++fields;
    }
    EXPECT_TRUE(operation["responses"]["400"]["content"]["application/json"].contains("schema"));
  }
  EXPECT_GT(fields, 100u);
  const Json& chat = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]
                             ["application/json"]["schema"];
  EXPECT_EQ(chat["required"].dump(), R"(["model","messages"])");
  EXPECT_EQ(
      chat["properties"]["n"].dump(),
      R"({"type":["integer","null"],"minimum":1,"maximum":128,"default":1,"description":"Number of choices per prompt."})");
  EXPECT_TRUE(document["paths"]["/health"]["get"]["security"].is_array());
  EXPECT_TRUE(document["paths"]["/health"]["get"]["security"].empty());
  EXPECT_EQ(document["security"].dump(), R"([{"key":[]}])");
}

TEST(Reference, HasARowForEveryFieldThatIsRead) {
  const std::string reference = api_reference();
  std::ifstream file(concat(test::source_folder(), "/docs/reference/serving-api.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(page == reference)
      << "run: build/release/trireme config api-reference > docs/reference/serving-api.md";
  EXPECT_NE(reference.find("| `n` | integer | 1 to 128 | `1` | Number of choices per prompt. |"),
            std::string::npos);
  EXPECT_NE(reference.find("| `model` | string |  | required | "), std::string::npos);
  for (const Field& field : kChatEndpoint.fields())
    EXPECT_NE(reference.find("`" + field.name + "`"), std::string::npos) << field.name;
}

TEST(Fields, ArePresentOnceInATable) {
  for (const Endpoint* endpoint : endpoints()) {
    if (endpoint->fields == nullptr) continue;
    std::set<std::string> names;
    for (const Field& field : endpoint->fields())
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
  }
}

}  // namespace
}  // namespace trireme::test_small_bodies
