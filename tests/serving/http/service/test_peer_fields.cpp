// Every field that another server documents, sent to every endpoint that it is for.
#include <map>

#include "serving/api/endpoint.h"
#include "serving/api/peer_fields.h"
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_service_peer_fields {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

// A small request to each endpoint without effects of its own: path and body.
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

// A field of another name does what the field does.
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
