// Every field that other servers document, sent to every endpoint that it belongs to.
#include <algorithm>
#include <map>

#include "serving/api/endpoint.h"
#include "serving/api/peer_fields.h"
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_service_peer_fields {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

// A small request for each endpoint without side effects: path and body.
const std::map<char, std::pair<std::string, Json>>& requests() {
  static const std::map<char, std::pair<std::string, Json>> all = [] {
    std::map<char, std::pair<std::string, Json>> out;
    const auto add = [&](char letter, const char* path, const char* body) {
      out.emplace(letter, std::pair(std::string(path), Json::parse(body)));
    };
    add('c', "/v1/completions", R"({"model":"m","prompt":"p","max_tokens":1})");
    add('h', "/v1/chat/completions",
        R"({"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1})");
    add('e', "/v1/embeddings", R"({"model":"m","input":"p"})");
    add('t', "/tokenize", R"({"prompt":"p"})");
    add('d', "/detokenize", R"({"tokens":[1]})");
    return out;
  }();
  return all;
}

class PeerFieldsOfAServer : public testing::Test {
 protected:
  Response ask(char endpoint, const char* field, const Json& value) {
    auto [path, body] = requests().at(endpoint);
    body[field] = value;
    client.send(post(path, body.dump()));
    return client.response();
  }
  RecordedServer server;
  RawClient client{server.port()};
};

bool is_of_numbers(const std::string& path, const std::string& name) {
  for (const Endpoint* endpoint : endpoints())
    if (endpoint->fields != nullptr && endpoint->path == path)
      for (const Field& field : endpoint->fields())
        if (field.name == name)
          return field.kind == FieldKind::kInteger || field.kind == FieldKind::kNumber;
  return false;
}

TEST_F(PeerFieldsOfAServer, AreUsedWithoutEffectOrRefusedByName) {
  for (const PeerField& row : peer_fields())
    for (const char endpoint : std::string(row.endpoints)) {
      if (!requests().contains(endpoint)) continue;
      const std::string& path = requests().at(endpoint).first;
      SCOPED_TRACE(concat(path, " ", row.name));
      if (row.effect == PeerEffect::kNoEffect) {
        EXPECT_EQ(ask(endpoint, row.name, Json::parse(R"({"x":1})")).status, 200);
      } else {
        const bool is_used = row.effect == PeerEffect::kUsed;
        const Json value = is_used && is_of_numbers(path, row.name) ? Json("x") : Json(7);
        const Response r = ask(endpoint, row.name, value);
        EXPECT_EQ(r.status, is_used ? 400 : 501) << r.body;
        const Json error = Json::parse(r.body).at("error");
        EXPECT_EQ(error.at("param"), row.name);
        EXPECT_NE(error.at("message").get<std::string>().find(row.name), std::string::npos);
      }
      for (const std::string& nothing : values_of(row.nothing))
        EXPECT_EQ(ask(endpoint, row.name, Json::parse(nothing)).status, 200) << nothing;
    }
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

// Alternatives that refusals name: the members to add to a request or to replace in it.
struct WayOut {
  const char* advice;
  char endpoint;
  const char* members;
};
const WayOut kWaysOut[] = {
    {"write the model's infilling tokens into the prompt", 'c',
     R"({"prompt": "<PRE>a<SUF>b<MID>"})"},
    {"use /v1/completions", 'c', R"({"echo": true})"},
    {"send texts or token ids", 'c', R"({"prompt": [[1, 2], [3]]})"},
    {"send texts or token ids", 'e', R"({"input": ["a", "b"]})"},
    {"send them as the prompt of /v1/completions", 'c', R"({"prompt": [1, 2]})"},
    {"write its token into the prompt of /v1/completions", 'c', R"({"prompt": "<task>p"})"},
    {"prompts are not truncated: shorten it", 'c', R"({"prompt": "s"})"},
    {"send the full prompt", 'c', R"({"prompt": "all that was said so far"})"},
    {"use chat_template", 'h', R"({"chat_template": "default"})"},
    {"send a message of the role system", 'h',
     R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]})"},
    {"send its members as fields of the request", 'c', R"({"temperature": 0.5, "top_k": 3})"},
    {"use input", 'e', R"({"input": "p"})"},
    {"send the tokens of the conversation (/tokenize) as input", 'e', R"({"input": [1, 2]})"},
    {"use truncate_prompt_tokens", 'e', R"({"truncate_prompt_tokens": 1})"},
    {"use prompt", 't', R"({"prompt": "p"})"},
    {"use add_special_tokens", 't', R"({"add_special_tokens": false})"},
    {"send the token ids themselves", 'c', R"({"prompt": [256, 1]})"},
    {"leave out tools instead of sending \"none\"", 't', "{}"},
    {"use logit_bias or structured_outputs", 'c', R"({"logit_bias": {"5": 100}})"},
    {"use repetition_penalty", 'c', R"({"repetition_penalty": 1.5})"},
    {"use repetition_penalty, which counts all tokens", 'h', R"({"repetition_penalty": 1.5})"},
    {"use min_p", 'c', R"({"min_p": 0.1})"},
    {"use temperature", 'c', R"({"temperature": 0.7})"},
    {"use top_p or min_p", 'c', R"({"top_p": 0.9, "min_p": 0.1})"},
    {"the order of samplers is fixed; leave it out", 'c', "{}"},
    {"use a larger top_p or a smaller min_p", 'c', R"({"top_p": 1, "min_p": 0.01})"},
    {"use a grammar", 'c', R"({"structured_outputs": {"grammar": "root ::= \"a\""}})"},
    {"use stop or a regex of structured_outputs", 'c', R"({"stop": ["."]})"},
    {"use response_format or a grammar", 'h', R"({"response_format": {"type": "json_object"}})"},
    {"write the white space into a grammar", 'c',
     R"({"structured_outputs": {"grammar": "root ::= \"{\" [ \\n]* \"}\""}})"},
    {"use response_format", 'c', R"({"response_format": {"type": "json_object"}})"},
    {"a grammar applies from the first token; leave it out", 'c', "{}"},
    {"extensions are not loaded; leave it out", 'c', "{}"},
    {"use max_tokens", 'h', R"({"max_tokens": 2})"},
    {"use reasoning_effort", 'h', R"({"reasoning_effort": "low"})"},
    {"use reasoning_effort or chat_template_kwargs", 'h',
     R"({"chat_template_kwargs": {"enable_thinking": false}})"},
    {"write it into a message", 'h', R"({"messages": [{"role": "user", "content": "in short"}]})"},
    {"calls are parsed; leave out tools", 'h', "{}"},
    {"nothing is fetched: use documents", 'h', "{}"},
    {"use continue_final_message", 'h',
     R"({"messages": [{"role": "assistant", "content": "x"}], "continue_final_message": true,
         "add_generation_prompt": false})"},
    {"use logprobs", 'c', R"({"logprobs": 2})"},
    {"use the most probable tokens of logprobs", 'c', R"({"logprobs": 20})"},
    {"use return_token_ids", 'h', R"({"return_token_ids": true})"},
    {"use /v1/embeddings", 'e', "{}"},
    {"use skip_special_tokens", 'c', R"({"skip_special_tokens": false})"},
    {"use /tokenize", 't', "{}"},
    {"use normalize", 'e', R"({"normalize": false})"},
    {"use return_token_strs", 't', R"({"return_token_strs": true})"},
    {"send the adapter's id as model", 'c', R"({"model": "m"})"},
    {"use cache_salt", 'c', R"({"cache_salt": "a"})"},
    {"use cache_salt to separate caches", 'h', R"({"cache_salt": "a"})"},
    {"there is one tier; see priority", 'c', R"({"priority": 0})"},
    {"prefill and decode run on one server; leave it out", 'c', "{}"},
};

TEST_F(PeerFieldsOfAServer, FollowTheAdvice) {
  for (const auto& [advice, endpoint, members] : kWaysOut) {
    SCOPED_TRACE(advice);
    EXPECT_TRUE(std::ranges::any_of(peer_fields(), [words =
                                                        std::string(advice)](const PeerField& row) {
      return row.words == words;
    })) << "no field is refused with it";
    auto [path, body] = requests().at(endpoint);
    body.update(Json::parse(members));
    client.send(post(path, body.dump()));
    const Response r = client.response();
    EXPECT_EQ(r.status, 200) << r.body;
  }
  // "send the header X-Request-Timeout-Ms"
  const auto& [path, body] = requests().at('c');
  client.send(post(path, body.dump(), "X-Request-Timeout-Ms: 60000\r\n"));
  EXPECT_EQ(client.response().status, 200);
}

// A field under another name has the same effect.
TEST_F(PeerFieldsOfAServer, ChangeTheResult) {
  const Json tokens = Json::parse(ask('c', "max_tokens", 5).body).at("usage");
  auto [path, body] = requests().at('c');
  body.erase("max_tokens");
  body["n_predict"] = 5;
  client.send(post(path, body.dump()));
  EXPECT_EQ(Json::parse(client.response().body).at("usage"), tokens);
  EXPECT_EQ(tokens.at("completion_tokens"), 5);
}

TEST_F(PeerFieldsOfAServer, SpellControlTokensOnRequest) {
  const auto text = [&](bool skip) {
    client.send(post("/detokenize", concat(R"({"tokens":[104,256],"skip_special_tokens":)",
                                           skip ? "true" : "false", "}")));
    return Json::parse(client.response().body).at("prompt").get<std::string>();
  };
  EXPECT_EQ(text(true), "h");
  EXPECT_EQ(text(false), "h" + server.tokenizer->token(256));
}

}  // namespace
}  // namespace trireme::test_service_peer_fields
