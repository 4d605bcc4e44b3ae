#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serving/api/endpoint.h"
#include "serving/api/openapi.h"

namespace trireme::test_openapi {
namespace {

using Json = nlohmann::ordered_json;

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
      const bool documented =
          field.status == FieldStatus::kRead || field.status == FieldStatus::kIgnored;
      EXPECT_EQ(schema["properties"].contains(field.name), documented) << field.name;
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

}  // namespace
}  // namespace trireme::test_openapi
