#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "engine/core/error.h"
#include "serving/api/endpoint.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/reference.h"
#include "tests/support/source_folder.h"

namespace trireme::test_reference {
namespace {

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
}  // namespace trireme::test_reference
