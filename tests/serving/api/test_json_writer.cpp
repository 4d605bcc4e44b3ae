#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "serving/api/json_writer.h"

namespace trireme::test_json_writer {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace
}  // namespace trireme::test_json_writer
