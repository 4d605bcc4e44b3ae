// Chat templates compared with Python's Jinja2 (tests/golden/chat.json, by make_chat.py), their
// limits, and where a model keeps its template.
#include <gtest/gtest.h>
#include <pthread.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/strict_json.h"
#include "engine/text/chat_template.h"
#include "tests/support/json_file.h"
#include "tests/support/sanitized.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"

namespace trireme::test_chat_template {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const TemplateLimits& limits = {}) {
  return ChatTemplate(source).render(variables, limits).text;
}

TEST(ChatTemplate, WritesWhatJinja2Writes) {
  const Json file = test::read_json_file<Json>(test::source_folder() + "/tests/golden/chat.json");
  size_t refused = 0;
  for (const Json& c : file["cases"]) {
    Json variables = {{"add_generation_prompt", false},
                      {"bos_token", "<|endoftext|>"},
                      {"eos_token", "<|endoftext|>"}};
    variables.update(file["conversations"][c["conversation"].get<std::string>()]);
    const auto source = c["template"].get<std::string>();
    SCOPED_TRACE(source.substr(0, 60) + " with " + c["conversation"].get<std::string>());
    if (c["text"].is_null()) {
      ++refused;
      EXPECT_THROW(render(source, variables), InputError);
    } else {
      EXPECT_EQ(render(source, variables), c["text"].get<std::string>());
    }
  }
  EXPECT_GT(refused, 20u);
  EXPECT_GT(file["cases"].size(), refused + 30);
}

TEST(ChatTemplate, ReportsWhatTheAssistantWrote) {
  const ChatTemplate chat(
      "{% for m in messages %}[{% if m.role == 'a' %}{% generation %}{{ m.content }}{% "
      "endgeneration "
      "%}{% else %}{{ m.content }}{% endif %}]{% endfor %}");
  const auto out = chat.render({{"messages",
                                 {{{"role", "u"}, {"content", "ask"}},
                                  {{"role", "a"}, {"content", "answer"}},
                                  {{"role", "a"}, {"content", ""}}}}});
  EXPECT_EQ(out.text, "[ask][answer][]");
  ASSERT_EQ(out.generated.size(), 1u);
  EXPECT_EQ(
      out.text.substr(out.generated[0].first, out.generated[0].second - out.generated[0].first),
      "answer");
}

// The output of a macro may be changed before it is written: the assistant's part in it is unknown.
TEST(ChatTemplate, ReportsNothingOfWhatTheAssistantWroteInAMacro) {
  const ChatTemplate chat(
      "{% generation %}a{% endgeneration %}{% macro m() %}{% generation %}b{% endgeneration %}{% "
      "endmacro %}{% if twice %}{{ m() | upper }}{% endif %}");
  EXPECT_EQ(chat.render({{"twice", false}}).generated.size(), 1u);
  const auto out = chat.render({{"twice", true}});
  EXPECT_EQ(out.text, "aB");
  EXPECT_TRUE(out.generated.empty());
}

TEST(ChatTemplate, RendersTheDateItIsGiven) {
  const ChatTemplate chat("{{ strftime_now('%Y') }}");
  EXPECT_EQ(chat.render(Json::object(), {}, 1'700'000'000).text, "2023");
}

struct Fault {
  const char* source;
  const char* says;
};

class FaultyTemplate : public testing::TestWithParam<Fault> {};

TEST_P(FaultyTemplate, IsRefusedByLineAndReason) {
  try {
    render(GetParam().source);
    FAIL() << GetParam().source;
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find(GetParam().says), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyTemplate,
    testing::Values(
        Fault{"\n\n{{ x.y }}", "line 3: \"x\" is undefined"}, Fault{"{% if x %}", "endif"},
        Fault{"{{ 1 | nothing }}", "\"nothing\""}, Fault{"{{ 1 is nothing }}", "\"nothing\""},
        Fault{"{% include 'x' %}", "include"}, Fault{"{% do x %}", "\"do\""},
        Fault{"{% autoescape true %}{% endautoescape %}", "\"autoescape\""},
        Fault{"{% block a required %}{% endblock %}", "required"},
        Fault{"{% block a %}{% endblock %}{% block a %}{% endblock %}", "twice"},
        Fault{"{% call 1 %}{% endcall %}", "call of a macro"},
        Fault{"{% macro m() %}{% endmacro %}{{ m(x=1) }}", "takes no argument \"x\""},
        Fault{"{{ [1].append(2) }}", "\"append\" changes"},
        Fault{"{{ {}.update({}) }}", "\"update\" changes"},
        Fault{"{{ lipsum() }}", "\"lipsum\" is undefined"}, Fault{"{{ 1 | pprint }}", "\"pprint\""},
        Fault{"{{ '%a' % 1 }}", "%a"}, Fault{"{{ '{:q}'.format(1) }}", "\"q\""},
        Fault{"{{ dict(**[1]) }}", "expected a dict"},
        Fault{"{{ '%*d' % (99999999999, 1) }}", "too large"},
        Fault{"{{ '%.999f' % 1 }}", "precision"}, Fault{"{{ '{:999999999}'.format('') }}", "bytes"},
        Fault{"{{ 'abc }}", "a string has no end"}, Fault{"{{ (1 }}", "closes no open bracket"},
        Fault{"{{ 9223372036854775807 + 1 }}", "64 bits"}, Fault{"{{ 1 // 0 }}", "zero"},
        Fault{"{{ 1 % 0 }}", "zero"}, Fault{"{% set x.y = 1 %}", "not a namespace"},
        Fault{"{{ {1: 2} }}", "key of a dict"}, Fault{"{% break %}", "outside a loop"},
        Fault{"{{ [1, 2][::0] }}", "step of 0"}, Fault{"{{ 'a' * 99999999999 }}", "bytes"},
        Fault{"{{ range(1000000) }}", "range"},
        Fault{"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deeper"},
        Fault{"{{ \"\\ud800\" }}", "half"}));

TEST(ChatTemplate, KeepsItsLimits) {
  const char* const nested =
      "{% for i in range(1000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}";
  EXPECT_THROW(render(nested), InputError);
  const char* const doubling =
      "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}";
  EXPECT_THROW(render(doubling), InputError);
  EXPECT_THROW(render("{{ 'aaaa' }}", Json::object(), {.output = 3}), InputError);
  EXPECT_THROW(render("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
               InputError);
  EXPECT_THROW(render("{{ " + std::string(5000, '-') + "1 }}"), InputError);
  std::string sum = "1", members = "x";
  for (int i = 0; i < 100'000; ++i) sum += "+1", members += ".a";
  EXPECT_THROW(render("{{ " + sum + " }}"), InputError);
  EXPECT_THROW(render("{{ " + members + " }}"), InputError);
  std::string blocks, ends;
  for (int i = 0; i < 5000; ++i) blocks += "{% if true %}", ends += "{% endif %}";
  EXPECT_THROW(render(blocks + ends), InputError);
  // Small template, much work: in one node, in an operation, or in memory.
  TemplateLimits limits;
  if (test::kSanitized) limits.steps /= 10;
  for (const char* const source :
       {"{{ [1] | batch(100000000, 0) | list | length }}",
        "{{ [1] | slice(100000000) | list | length }}",
        "{% set b = 'a' * 60000000 %}{% for i in range(100000) %}{{ b.partition('b') | length }}{% "
        "endfor %}",
        "{% set b = '%s' * 100000 %}{% for i in range(100000) %}{{ b % ((1,) * 100000) }}{% endfor "
        "%}",
        "{% for i in range(100000) %}{{ ''.center(60000000) | length }}{% endfor %}",
        "{% macro m() %}{{ kwargs | length }}{% endmacro %}{% set d = dict(a=1) %}{% for i in "
        "range(100000) %}{{ m(**d) }}{{ m(**dict(d, b=range(1000))) }}{% endfor %}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% for i in range(100000) %}{% call m() %}{% "
        "for j in range(1000) %}{% endfor %}{% endcall %}{% endfor %}",
        "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
        "{% set b = 'a' * 60000000 %}{% for i in range(100000) %}{{ (b ~ 'a') | length }}{% endfor "
        "%}",
        "{% set b = 'a' * 60000000 %}{% for i in range(100000) %}{{ b | length }}{% endfor %}",
        "{% set b = 'a' * 60000000 %}{% for i in range(100000) %}{{ b[3] }}{% endfor %}",
        "{% set b = 'a ' * 30000000 %}{{ b.split() | length }}",
        "{% set l = [0] * 100000 %}{% for i in range(100000) %}{{ -1 in l }}{% endfor %}",
        "{% set l = [0] * 1000000 %}{% for i in range(100000) %}{{ l[1:] | length }}{% endfor %}",
        "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}{% endfor "
        "%}{{ n.a | tojson }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}{% endfor "
        "%}{{ n.a }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}{% endfor "
        "%}{{ n.a == [n.a[0], n.a[1]] }}",
        "{% set n = namespace(a=[]) %}{% for i in range(100000) %}{% set n.a = [n.a, 'a' * "
        "60000000] %}{% endfor %}"})
    EXPECT_THROW(render(source, Json::object(), limits), InputError) << source;
  EXPECT_EQ(render("{{ (0-1)**9000000000000000000 }} {{ 2**62 }} {{ 3**0 }}"),
            "1 4611686018427387904 1");
  EXPECT_THROW(render("{{ 2**63 }}"), InputError);
  // Deeply nested values are freed and compared without recursion.
  const TemplateLimits many = {.steps = 20'000'000};
  const std::string deep =
      "{% set n = namespace(a=[], b=[]) %}{% for i in range(100000) %}{% set n.a = "
      "[n.a] %}{% set n.b = (n.b,) %}{% endfor %}{% set n.b = [] %}";
  EXPECT_EQ(render(deep + "{% set n.a = 1 %}x", Json::object(), many), "x");
  EXPECT_EQ(render(deep + "{% set m = namespace(a=namespace(a=n)) %}{% set n.b = m %}x",
                   Json::object(), many),
            "x");
  EXPECT_THROW(render(deep + "{{ n.a == [n.a[0]] }}", Json::object(), many), InputError);
  // A list that contains itself cannot be created, and so cannot be printed forever.
  EXPECT_THROW(render("{% set l = [] %}{{ l.append(l) }}"), InputError);
}

// Each kind of expression nested in itself, and in a macro that calls itself: an error, on the
// smallest stack of any thread (2 MiB, glibc's where the stack is unlimited).
TEST(ChatTemplate, NestedExpressionsFitTheSmallestStack) {
  const auto repeated = [](const char* what, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += what;
    return out;
  };
  const auto in_macro = [](const std::string& e) {
    return "{% macro m(n, d={}) %}{{ " + e + " }}{% endmacro %}{{ m(1) }}";
  };
  const std::vector<std::string> sources = {
      in_macro("m(n)" + repeated("|trim", 1900)),
      in_macro("m(n)" + repeated("|e", 1900)),
      in_macro("m(n)" + repeated("|replace('a', 'b')", 250)),
      in_macro("m(n)" + repeated("[0]", 600)),
      in_macro("m(n)" + repeated("[0:1]", 250)),
      in_macro("m(n)" + repeated(".a", 1900)),
      in_macro("m(n)" + repeated(".strip()", 900)),
      in_macro("m(n)" + repeated(" ~ 'a'", 600)),
      in_macro("m(n)" + repeated(" is string", 1900)),
      in_macro("m(n)" + repeated(" or m(n)", 250)),
      in_macro(repeated("[", 190) + "m(n)" + repeated("]", 190)),
      in_macro(repeated("{'a': ", 190) + "m(n)" + repeated("}", 190)),
      in_macro(repeated("not ", 190) + "m(n)"),
      in_macro(repeated("m(", 190) + "n" + repeated(")", 190)),
      "{% macro m(n) %}{% call m(n" + repeated("|e", 1900) + ") %}{{ m(n" + repeated("|e", 1900) +
          ") }}{% endcall %}{{ m(n)" + repeated("|e", 1900) + " }}{% endmacro %}{{ m(1) }}",
      "{% for x in [1] recursive %}{{ loop([1])" + repeated("|e", 1900) + " }}{% endfor %}",
  };
  pthread_attr_t small;
  ASSERT_EQ(pthread_attr_init(&small), 0);
  // Stack frames are several times larger under the sanitizers.
  const size_t stack = size_t{test::kSanitized ? 8 : 2} << 20;
  ASSERT_EQ(pthread_attr_setstacksize(&small, stack), 0);
  for (const std::string& source : sources) {
    struct Run {
      const std::string& source;
      std::string what = "nothing";
    } run{source};
    pthread_t thread;
    const auto body = [](void* given) -> void* {
      auto& r = *static_cast<Run*>(given);
      try {
        (void)render(r.source);
      } catch (const InputError& e) {
        r.what = e.what();
      }
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &small, body, &run), 0);
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
    EXPECT_NE(run.what.find("deeper than"), std::string::npos)
        << source.substr(0, 80) << ": " << run.what;
  }
  (void)pthread_attr_destroy(&small);
  // Templates of real models need a few dozen levels.
  EXPECT_EQ(render("{{ 'a'" + repeated("|trim", 498) + " }}"), "a");
  EXPECT_THROW(render("{{ 'a'" + repeated("|trim", 500) + " }}"), InputError);
}

// Search time is linear in the text. Quadratic searches would take minutes here.
TEST(ChatTemplate, SearchesAreLinear) {
  const std::string long_one = "{% set a = 'a' * 2000000 %}{% set b = 'a' * 1000000 %}";
  EXPECT_EQ(render(long_one + "{{ ('b' ~ b) in a }} {{ (b ~ 'b') in a }}"), "False False");
  EXPECT_EQ(
      render(long_one + "{{ a.rfind('b' ~ b) }} {{ a.find(b ~ 'b') }} {{ a.count(b ~ 'b') }}"),
      "-1 -1 0");
  EXPECT_EQ(render(long_one + "{{ a.replace(b ~ 'b', '') | length }}"), "2000000");
  EXPECT_EQ(render("{% set c = 'ab' * 100000 %}{{ c.strip('xyz' * 100000) | length }}"), "200000");
  EXPECT_THROW(render("{% for i in range(300) %}{% for k, v in d | items %}{% if loop.first %}"
                      "{% break %}{% endif %}{% endfor %}{% endfor %}",
                      {{"d",
                        [] {
                          Json d = Json::object_t();
                          for (int i = 0; i < 3000; ++i)
                            d.get_ref<Json::object_t&>().push_back({concat("k", i), i});
                          return d;
                        }()}}),
               InputError);
}

// Python's integers are unbounded.
TEST(ChatTemplate, LongIntegersAreKeptAsWritten) {
  const auto given = parse_strict_json<Json>(
      R"({"a": 12345678901234567890, "b": -123456789012345678901234567890, "c": 9223372036854775807,
          "d": [123456789012345678901234567890]})",
      "the input", {.long_integers = true});
  EXPECT_EQ(render("{{ a }} {{ b }} {{ {'b': b} | tojson }} {{ d }} {{ a is integer }}", given),
            "12345678901234567890 -123456789012345678901234567890 "
            "{\"b\": -123456789012345678901234567890} [123456789012345678901234567890] True");
  EXPECT_EQ(
      render("{{ a == a }} {{ a == c }} {{ c < a }} {{ b < c }} {{ a < d[0] }} {{ b < b }}", given),
      "True False True True True False");
  EXPECT_THROW(render("{{ a + 1 }}", given), InputError);
  EXPECT_EQ(render("{{ a ~ '' }} {{ a | int }}", given),
            "12345678901234567890 12345678901234567890");
}

// Expected output of Jinja2 3.1: lines end where Python's str.splitlines() ends them.
TEST(ChatTemplate, IndentAndUrlencodeAreThoseOfJinja2) {
  EXPECT_EQ(render(R"({{ 'a\u2028b\r\nc\x0bd\n' | indent(1) }})"), "a\n b\n c\n d\n");
  EXPECT_EQ(render(R"({{ '' | indent }}|{{ '\n' | indent(2, true, true) }})"), "|  \n  ");
  EXPECT_EQ(render(R"({{ 'a\u0085\x1cb\u2029' | indent }})"), "a\n\n    b\n");
  EXPECT_EQ(render(R"({{ {'a b': '/x&', 'c': 1} | urlencode }} {{ 'a b/\u00e9~' | urlencode }})"),
            "a+b=%2Fx%26&c=1 a%20b/%C3%A9~");
  EXPECT_EQ(render("{{ [('a', '=')] | urlencode }} {{ 5 | urlencode }}"), "a=%3D 5");
}

// The maximum number of steps, blocks and calls, and one more.
TEST(ChatTemplate, KeepsItsLimitsExactly) {
  const auto refused = [](const std::string& source, const TemplateLimits& limits) -> std::string {
    try {
      render(source, Json::object(), limits);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto expect_bound = [&](const std::function<std::string(int)>& source, int most,
                                const TemplateLimits& limits, const char* why) {
    EXPECT_EQ(refused(source(most), limits), "nothing") << why;
    EXPECT_NE(refused(source(most + 1), limits).find(why), std::string::npos)
        << why << ": " << refused(source(most + 1), limits);
  };
  const auto loop = [](int turns) {
    return concat("{% for i in range(", turns, ") %}{% endfor %}");
  };
  const auto blocks = [](int depth) {
    std::string begins, ends;
    for (int i = 0; i < depth; ++i) begins += "{% if true %}", ends += "{% endif %}";
    return begins + "x" + ends;
  };
  const auto calls = [](int depth) {
    return concat("{% macro m(n) %}{{ m(n - 1) if n > 1 else 'x' }}{% endmacro %}{{ m(", depth,
                  ") }}");
  };
  const auto bytes = [](int count) { return std::string(static_cast<size_t>(count), 'x'); };
  const TemplateLimits limits;
  EXPECT_EQ(limits.steps, 1'000'000);
  EXPECT_EQ(limits.depth, 100);
  EXPECT_EQ(limits.output, 64 << 20);
  expect_bound(loop, 333, {.steps = 1002}, "more than 1002 steps");  // three per turn, and three
  expect_bound(blocks, 99, limits, "deeper than 100");
  expect_bound(calls, 49, limits, "deeper than 100");
  expect_bound(bytes, 1000, {.output = 1000}, "more than 1000 bytes");
}

TEST(ChatTemplate, OfNoFileIsNotThatOfTheCurrentFolder) {
  const test::ScratchDirectory dir;
  std::ofstream(dir / "chat_template.jinja") << "c";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  EXPECT_EQ(find_chat_templates("tokenizer.json"), (ChatTemplateSources{{"default", "c"}}));
  EXPECT_TRUE(find_chat_templates("byte").empty());
  EXPECT_TRUE(find_chat_templates("").empty());
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace trireme::test_chat_template
