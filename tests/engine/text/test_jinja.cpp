// Small templates compared with Python's Jinja2 (tests/golden/jinja.json, by make_jinja.py):
// undefined values, numbers, cyclers, case mappings.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/text/chat_template.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"

namespace trireme::test_jinja {
namespace {

using Json = nlohmann::ordered_json;

TEST(Jinja, GivesWhatJinja2Gives) {
  const Json cases = test::read_json_file<Json>(test::source_folder() + "/tests/golden/jinja.json");
  size_t refused = 0;
  for (const Json& c : cases) {
    const auto source = c[0].get<std::string>();
    Json variables = {{"d", Json::object()}};
    if (!c[1].is_null()) variables["w"] = c[1];
    SCOPED_TRACE(source + " with " + c[1].dump());
    std::string got;
    try {
      got = ChatTemplate(source).render(variables).text;
    } catch (const InputError& e) {
      ++refused;
      EXPECT_TRUE(c[2].is_null()) << e.what();
      continue;
    }
    EXPECT_EQ(Json(got), c[2]);
  }
  EXPECT_GT(refused, 300u);
  EXPECT_GT(cases.size(), refused + 800);
}

TEST(Jinja, NamesWhatIsWrong) {
  const auto message = [](const char* source) -> std::string {
    try {
      (void)ChatTemplate(source).render(Json::object());
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  const std::pair<const char*, const char*> faults[] = {
      {"{{ u | int }}", "\"u\" is undefined"},
      {"{{ 1 | int(2, 3, 4) }}", "\"int\" takes at most 2 arguments"},
      {"{{ 1 | tojson(odd=1) }}", "\"tojson\" takes no argument \"odd\""},
      {"{{ 1 | int(7, default=8) }}", "\"default\" twice"},
      {"{{ [1] | map('int', odd=1) | list }}", "\"int\" takes no argument \"odd\""},
      {"{{ u | pprint }}", "\"pprint\" is not supported"},
      {"{{ 'ffffffffffffffffffff' | int(base=16) }}", "more than 64 bits"},
      {"{{ cycler('a').next(1) }}", "next takes no arguments"},
      {"{{ lipsum() }}", "lipsum"}};
  for (const auto& [source, what] : faults)
    EXPECT_NE(message(source).find(what), std::string::npos) << source << ": " << message(source);
}

}  // namespace
}  // namespace trireme::test_jinja
