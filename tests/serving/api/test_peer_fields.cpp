// Fields that other servers document: the rows of the table, and the parsers.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "serving/api/api_error.h"
#include "serving/api/endpoint.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/api/endpoints/detokenize.h"
#include "serving/api/endpoints/embeddings.h"
#include "serving/api/endpoints/lora_adapters.h"
#include "serving/api/endpoints/tokenize.h"
#include "serving/api/peer_fields.h"

namespace trireme::test_peer_fields {
namespace {

using Json = nlohmann::ordered_json;

struct Parsed {
  const char* path;
  std::function<void(const std::string&)> parse;
  const char* body;  // with the required fields
};

const std::map<char, Parsed>& parsers() {
  static const std::map<char, Parsed> all = {
      {'c',
       {"/v1/completions", [](const std::string& b) { parse_completion(b); },
        R"({"model":"m","prompt":"p"})"}},
      {'h',
       {"/v1/chat/completions", [](const std::string& b) { parse_chat(b); },
        R"({"model":"m","messages":[{"role":"user","content":"x"}]})"}},
      {'e',
       {"/v1/embeddings", [](const std::string& b) { parse_embeddings(b); },
        R"({"model":"m","input":"p"})"}},
      {'t', {"/tokenize", [](const std::string& b) { parse_tokenize(b); }, R"({"prompt":"p"})"}},
      {'d',
       {"/detokenize", [](const std::string& b) { parse_detokenize(b); }, R"({"tokens":[1]})"}},
      {'l',
       {"/v1/load_lora_adapter", [](const std::string& b) { parse_load_adapter(b); },
        R"({"lora_name":"a","lora_path":"b"})"}},
      {'u',
       {"/v1/unload_lora_adapter", [](const std::string& b) { parse_unload_adapter(b); },
        R"({"lora_name":"a"})"}}};
  return all;
}

// "" where it is accepted, else "status param: message".
std::string refusal(const Parsed& parser, const char* field, const Json& value) {
  Json body = Json::parse(parser.body);
  body[field] = value;
  try {
    parser.parse(body.dump());
  } catch (const ApiError& error) {
    return concat(error.status(), " ", error.param(), ": ", error.what());
  }
  return "";
}

const Field* field_of(const char* path, const std::string& name) {
  for (const Endpoint* endpoint : endpoints())
    if (endpoint->fields != nullptr && std::string(endpoint->path) == path)
      for (const Field& field : endpoint->fields())
        if (field.name == name) return &field;
  return nullptr;
}

Json wrong_value(const Field& field) {
  const bool of_numbers = field.kind == FieldKind::kInteger || field.kind == FieldKind::kNumber;
  return of_numbers ? Json("x") : Json(7);
}

TEST(PeerFields, AreOneRowAnEndpoint) {
  std::set<std::string> seen, letters;
  for (const FieldLetter& one : kPeerEndpoints) {
    letters.insert(std::string(1, one.letter));
    ASSERT_TRUE(parsers().contains(one.letter)) << one.letter;
    EXPECT_STREQ(parsers().at(one.letter).path, one.meaning);
  }
  EXPECT_EQ(letters.size(), std::size(kPeerEndpoints));
  for (const PeerField& row : peer_fields()) {
    EXPECT_NE(*row.endpoints, '\0') << row.name;
    EXPECT_NE(*row.peers, '\0') << row.name;
    EXPECT_EQ(std::string_view(row.peers).find_first_not_of("OVSLA"), std::string_view::npos);
    for (const char endpoint : std::string(row.endpoints)) {
      EXPECT_TRUE(letters.contains(std::string(1, endpoint))) << row.name;
      EXPECT_TRUE(seen.insert(concat(row.name, endpoint)).second) << row.name << endpoint;
    }
    // A reason, or an alternative.
    EXPECT_TRUE(row.effect == PeerEffect::kUsed || *row.words != '\0') << row.name;
    for (const std::string& value : values_of(row.nothing))
      EXPECT_TRUE(Json::accept(value)) << row.name;
  }
  EXPECT_GT(seen.size(), 300u);
}

TEST(PeerFields, AreUsedWithoutEffectOrRefusedByName) {
  for (const PeerField& row : peer_fields())
    for (const char endpoint : std::string(row.endpoints)) {
      const Parsed& parser = parsers().at(endpoint);
      SCOPED_TRACE(concat(parser.path, " ", row.name));
      const Field* const field = field_of(parser.path, row.name);
      ASSERT_NE(field, nullptr);
      if (row.effect == PeerEffect::kUsed) {
        EXPECT_EQ(field->status, FieldStatus::kRead);
        const std::string why = refusal(parser, row.name, wrong_value(*field));
        EXPECT_EQ(why.substr(0, why.find(':')).substr(0, 4 + field->name.size()),
                  concat("400 ", row.name))
            << why;
      } else if (row.effect == PeerEffect::kNoEffect) {
        for (const Json& value : {Json(7), Json("x"), Json(true), Json::object(), Json::array()})
          EXPECT_EQ(refusal(parser, row.name, value), "");
      } else {
        for (const Json& value :
             {Json(77), Json("x"), Json::parse(R"({"x":1})"), Json::array({"x"})}) {
          const std::string why = refusal(parser, row.name, value);
          EXPECT_TRUE(why.starts_with(concat("501 ", row.name, ": ", row.name))) << why;
          EXPECT_TRUE(why.ends_with(row.words)) << why;
        }
        EXPECT_EQ(refusal(parser, row.name, nullptr), "");
      }
      for (const std::string& value : values_of(row.nothing))
        EXPECT_EQ(refusal(parser, row.name, Json::parse(value)), "") << value;
    }
}

// Neutral values are compared as numbers, not as text.
TEST(PeerFields, CompareNumbersByValue) {
  const Parsed& parser = parsers().at('c');
  EXPECT_EQ(refusal(parser, "repeat_penalty", 1.0), "");
  EXPECT_NE(refusal(parser, "repeat_penalty", 1.1), "");
  EXPECT_EQ(refusal(parser, "n_probs", -0.0), "");
}

std::string completion(const std::string& fields) {
  return concat(R"({"model":"m","prompt":"p",)", fields, "}");
}
std::string chat(const std::string& fields) {
  return concat(R"({"model":"m","messages":[{"role":"user","content":"x"}],)", fields, "}");
}

TEST(PeerFields, OtherNamesAreReadAsTheFields) {
  for (const char* name : {"n_predict", "max_new_tokens", "max_completion_tokens"}) {
    EXPECT_EQ(parse_completion(completion(concat("\"", name, "\":7"))).max_tokens, 7) << name;
    EXPECT_EQ(parse_chat(chat(concat("\"", name, "\":7"))).max_tokens, 7) << name;
  }
  EXPECT_FALSE(parse_chat(chat(R"("n_predict":-1)")).max_tokens.has_value());
  EXPECT_EQ(parse_completion(completion(R"("min_new_tokens":3)")).min_tokens, 3);
  EXPECT_EQ(parse_chat(chat(R"("n_cmpl":3)")).n, 3);
  EXPECT_TRUE(parse_completion(completion(R"("no_stop_trim":true)")).include_stop);
  EXPECT_FALSE(parse_embeddings(R"({"model":"m","input":"p","use_activation":false})").normalize);
  EXPECT_EQ(parse_embeddings(R"({"model":"m","input":"p","cache_salt":"s"})").cache_salt, "s");
  EXPECT_FALSE(parse_detokenize(R"({"tokens":[1],"skip_special_tokens":false})").skip_special);
  const TokenizeRequest tokenize =
      parse_tokenize(R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"})");
  EXPECT_EQ((*tokenize.variables)["reasoning_effort"], "low");
}

// Templates without an effort setting have one of two switches.
TEST(PeerFields, ReasoningEffortSetsTheSwitchesOfTemplates) {
  const auto switches = [](const std::string& fields) {
    const auto variables = parse_chat(chat(fields)).variables;
    return concat(variables->value("enable_thinking", Json()).dump(), " ",
                  variables->value("thinking", Json()).dump());
  };
  EXPECT_EQ(switches(R"("n":1)"), "null null");
  EXPECT_EQ(switches(R"("reasoning_effort":"none")"), "false false");
  EXPECT_EQ(switches(R"("reasoning_effort":"low")"), "true true");
  EXPECT_EQ(
      switches(R"("reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})"),
      "true false");
  EXPECT_EQ(switches(R"("chat_template_kwargs":{"reasoning_effort":"none"})"), "null null");
}

TEST(PeerFields, NamesOfOneFieldHaveOneValue) {
  const auto why = [](const std::string& fields) -> std::string {
    try {
      parse_completion(completion(fields));
    } catch (const ApiError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why(R"("max_tokens":7,"n_predict":7.0)"), "");
  EXPECT_EQ(why(R"("max_tokens":7,"n_predict":null)"), "");
  const std::string end = " are names of the same field but have different values";
  EXPECT_EQ(why(R"("max_tokens":7,"n_predict":8)"), "n_predict and max_tokens" + end);
  EXPECT_EQ(why(R"("max_new_tokens":7,"n_predict":8)"), "n_predict and max_new_tokens" + end);
  EXPECT_NO_THROW(parse_chat(chat(R"("max_tokens":7,"n_predict":-1)")));
}

TEST(PeerFields, UnknownOptionsOfStreamsAreListed) {
  const CompletionRequest r = parse_completion(completion(
      R"("stream":true,"stream_options":{"include_usage":true,"include_obfuscation":true,)"
      R"("include_all":true})"));
  EXPECT_EQ(r.unknown, (std::vector<std::string>{"stream_options.include_all"}));
}

}  // namespace
}  // namespace trireme::test_peer_fields
