// Constraints on the output, in every spelling: accepted, or refused by name, never ignored.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/api/api_error.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"

namespace trireme::test_constraint_fields {
namespace {

using Kind = Constraint::Kind;

constexpr char kSchema[] = R"({"type":"object","properties":{"a":{"type":"boolean"}}})";

std::string with(const char* prompt, const std::string& more) {
  return concat(R"({"model":"m",)", prompt, more.empty() ? "" : ",", more, "}");
}
std::string completion(const std::string& more) { return with(R"("prompt":"hi")", more); }
std::string chat(const std::string& more) {
  return with(R"("messages":[{"role":"user","content":"hi"}])", more);
}

// "400 parameter: message" from both endpoints; "" where one accepts it.
std::string refusal(const std::string& fields) {
  std::string of_completion, of_chat;
  const auto words = [](const ApiError& e) {
    return concat(e.status(), " ", e.param(), ": ", e.what());
  };
  try {
    parse_completion(completion(fields), {});
  } catch (const ApiError& error) {
    of_completion = words(error);
  }
  try {
    parse_chat(chat(fields), {});
  } catch (const ApiError& error) {
    of_chat = words(error);
  }
  EXPECT_EQ(of_completion, of_chat) << fields;
  return of_chat;
}

void expect_constraint(const std::string& fields, Kind kind, const std::string& text) {
  SCOPED_TRACE(fields);
  const Constraint of_chat = parse_chat(chat(fields), {}).constraint;
  const Constraint of_completion = parse_completion(completion(fields), {}).constraint;
  for (const Constraint& read : {of_chat, of_completion}) {
    EXPECT_EQ(read.kind, kind);
    EXPECT_EQ(kind == Kind::kChoice ? concat(read.choices.size()) : read.text, text);
    EXPECT_EQ(concat("\"", read.param, "\""), fields.substr(0, read.param.size() + 2));
  }
}

TEST(Constraints, OfResponseFormatsAreReadInTheSpellingsOfPeers) {
  const auto format = [](const std::string& type, const std::string& more) {
    return concat(R"("response_format":{"type":")", type, "\"", more, "}");
  };
  const std::string schema = concat(R"(,"schema":)", kSchema);
  const std::string named = concat(R"(,"json_schema":{"name":"n","strict":true,"schema":)", kSchema,
                                   R"(,"description":null})");
  for (const char* type : {"json_object", "json_schema"})
    for (const std::string& more : {schema, named})
      expect_constraint(format(type, more), Kind::kJsonSchema, kSchema);
  expect_constraint(format("json_schema", R"(,"name":"n","strict":false)" + schema),
                    Kind::kJsonSchema, kSchema);
  for (const char* more : {"", R"(,"schema":null)", R"(,"schema":{})", R"(,"schema":true)"})
    expect_constraint(format("json_object", more), Kind::kJsonObject, "");
  expect_constraint(format("grammar", R"(,"grammar":"root ::= \"a\"")"), Kind::kGrammar,
                    "root ::= \"a\"");
  expect_constraint(format("regex", R"(,"pattern":"a+")"), Kind::kRegex, "a+");
  EXPECT_EQ(parse_chat(chat(format("text", R"(,"schema":null)")), {}).constraint.kind, Kind::kNone);
}

TEST(Constraints, AreReadByTheNamesOfPeers) {
  for (const char* name : {"json_schema", "guided_json"}) {
    expect_constraint(concat("\"", name, "\":", kSchema), Kind::kJsonSchema, kSchema);
    expect_constraint(concat("\"", name, R"(":"{}")"), Kind::kJsonSchema, "{}");
  }
  for (const char* name : {"regex", "guided_regex"})
    expect_constraint(concat("\"", name, R"(":"a+")"), Kind::kRegex, "a+");
  for (const char* name : {"grammar", "ebnf", "guided_grammar"})
    expect_constraint(concat("\"", name, R"(":"root ::= [a]")"), Kind::kGrammar, "root ::= [a]");
  expect_constraint(R"("guided_choice":["a","b"])", Kind::kChoice, "2");
  expect_constraint(R"("structured_outputs":{"regex":"a","json":null,"disable_fallback":true,)"
                    R"("disable_any_whitespace":false})",
                    Kind::kRegex, "a");
}

// Defaults and options of other servers, as their clients send them.
TEST(Constraints, WhatAsksForNoneIsNone) {
  for (const char* field :
       {R"("grammar":"")", R"("regex":"")", R"("grammar_string":"")", R"("json_schema":"")",
        R"("guidance_scale":1)", R"("response_notes":["content"])", R"("guided_x":null)"})
    EXPECT_EQ(parse_completion(completion(field), {}).constraint.kind, Kind::kNone) << field;
}

TEST(Constraints, MembersThatAreNotKnownAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("response_format":{"type":"text","schema":{}})", "response_format.schema"},
      {R"("response_format":{"type":"json_object","strict":true})", "response_format.strict"},
      {R"("response_format":{"type":"json_object","value":{}})", "response_format.value"},
      {R"("response_format":{"type":"json_schema","schema":{},"json_schema":{"name":"n",)"
       R"("schema":{}}})",
       "response_format.json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},)"
       R"("stict":true}})",
       "response_format.json_schema.stict"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},)"
       R"("strict":"yes"}})",
       "response_format.json_schema.strict"},
      {R"("response_format":{"type":"json_schema","json_schema":{"type":"object"}})",
       "response_format.json_schema.type"},
      {R"("response_format":{"type":"regex","value":"a"})", "response_format.value"},
      {R"("response_format":{"type":"grammar"})", "response_format.grammar"},
      {R"("response_format":{"type":"xml"})", "response_format.type"},
      {R"("structured_outputs":{"regexp":"a"})", "structured_outputs.regexp"},
      {R"("structured_outputs":{"regexp":false})", "structured_outputs.regexp"},
      {R"("structured_outputs":{"regex":"a","json_object":true})",
       "structured_outputs.json_object"},
      {R"("structured_outputs":{})", "structured_outputs"},
      {R"("structured_outputs":{"json":null})", "structured_outputs"},
      {R"("grammar":"root ::= [a]","regex":"a")", "regex"},
      {R"("guided_json":[1])", "guided_json"},
      {R"("guided_jsn":{})", ""},
      {R"("guided_jsn":{"type":"object"})", "guided_jsn"},
      {R"("reponse_format":{"type":"json_object"})", "reponse_format"},
      {R"("structured_output":{"regex":"a"})", "structured_output"},
      {R"("responseSchema":{"type":"object"})", "responseSchema"},
      {R"("text_format":"json")", "text_format"},
      {R"("json_mode":true)", "json_mode"},
      {R"("json_mode":false)", ""},
      {R"("output_config":{"format":{"type":"json_schema"}})", "output_config"},
      {R"("logits_processors":["x"])", "logits_processors"}};
  for (const auto& [fields, param] : cases) {
    const std::string why = refusal(fields);
    EXPECT_EQ(why.substr(0, why.find(':')), param.empty() ? "" : concat("400 ", param)) << why;
  }
  // Known but unsupported options.
  for (const char* fields : {R"("structured_outputs":{"structural_tag":"x"})",
                             R"("structured_outputs":{"regex":"a","disable_any_whitespace":true})",
                             R"("structural_tag":"x")", R"("format":"json")"})
    EXPECT_EQ(refusal(fields).substr(0, 4), "501 ") << fields;
}

TEST(Constraints, OfToolsAreReadOrNamed) {
  const auto why = [](const std::string& tool, const std::string& more) -> std::string {
    try {
      parse_chat(chat(concat(R"("tools":[{"type":"function",)", tool, "}]", more)), {});
    } catch (const ApiError& error) {
      return concat(error.status(), " ", error.param());
    }
    return "";
  };
  const std::string plain = R"("function":{"name":"f"})";
  const auto choose = [](const char* more) {
    return concat(R"(,"tool_choice":{"type":"function","function":{"name":"f"})", more, "}");
  };
  EXPECT_EQ(why(plain, choose("")), "");
  EXPECT_EQ(why(R"("function":{"name":"f","strict":true,"description":"d"})", ""), "");
  EXPECT_EQ(why(plain + R"(,"strict":true)", ""), "400 tools[0].strict");
  EXPECT_EQ(why(R"("function":{"name":"f","paramters":{"type":"object"}})", ""),
            "400 tools[0].function.paramters");
  // Clients' own annotations request nothing.
  EXPECT_EQ(why(plain + R"(,"cache_control":{"type":"ephemeral"})", ""), "");
  EXPECT_EQ(why(R"("function":{"name":"f","x-note":1,"target":"browser"})", ""), "");
  EXPECT_EQ(why(R"("function":{"name":"f","input_schema":{"type":"object"}})", ""),
            "400 tools[0].function.input_schema");
  EXPECT_EQ(why(plain, choose(R"(,"disable_parallel_tool_use":true)")),
            "400 tool_choice.disable_parallel_tool_use");
  EXPECT_EQ(why(plain, R"(,"tool_choice":{"type":"function","function":{"name":"f","x":1}})"),
            "400 tool_choice.function.x");
  EXPECT_THROW(parse_completion(completion(R"("tools":[{"type":"function"}])"), {}), ApiError);
  EXPECT_NO_THROW(parse_completion(completion(R"("tools":[],"tool_choice":"none")"), {}));
}

}  // namespace
}  // namespace trireme::test_constraint_fields
