// Token ids, and the stop that ended a completion: from the fields of a request to the members of
// its response.
#include <nlohmann/json.hpp>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_token_ids {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

Ids ids_of(const std::string& bytes) {
  Ids ids;
  for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

class TokenIds : public testing::Test {
 protected:
  Json choices(const std::string& more) const {
    const Response r = server.ask(
        post("/v1/completions",
             concat(R"({"model":"m","prompt":"hi","return_token_ids":true,)", more, "}")));
    EXPECT_EQ(r.status, 200) << r.body;
    return Json::parse(r.body)["choices"];
  }
  // All endpoints return these ids and the prompt's.
  void expect(const std::string& fields, size_t count, const Ids& ids) const {
    SCOPED_TRACE(fields);
    const Json all = choices(fields);
    ASSERT_EQ(all.size(), count);
    for (const Json& one : all) {
      EXPECT_EQ(one["token_ids"].get<Ids>(), ids);
      EXPECT_EQ(one["prompt_token_ids"].get<Ids>(), ids_of("hi"));
    }
  }

  RecordedServer server;
  const Ids six = ids_of(RecordedServer::continuation("hi", 6));
};

TEST_F(TokenIds, AreOfTheTextAlone) {
  expect(R"("max_tokens":6)", 1, six);
  expect(R"("max_tokens":6,"echo":true,"n":2)", 2, six);
  expect(R"("max_tokens":6,"n":2,"best_of":3)", 2, six);
  expect(R"("max_tokens":0,"echo":true)", 1, {});  // the computed token is not returned
}

TEST_F(TokenIds, AreOfEachTextOfABeamSearch) {
  for (const Json& one : choices(R"("max_tokens":6,"use_beam_search":true,"n":3)")) {
    EXPECT_EQ(one["token_ids"].size(), 6u);
    EXPECT_EQ(one["prompt_token_ids"].get<Ids>(), ids_of("hi"));
  }
}

TEST_F(TokenIds, AreLeftOutUnlessAsked) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const bool chat = std::string_view(path) != "/v1/completions";
    const char* body = chat ? R"({"model":"m","messages":[{"role":"user","content":"hi"}]})"
                            : R"({"model":"m","prompt":"hi","return_token_ids":false})";
    EXPECT_EQ(server.ask(post(path, body)).body.find("token_ids"), std::string::npos) << path;
  }
}

TEST_F(TokenIds, OfAChatHaveThePromptOnce) {
  const Response r = server.ask(post(
      "/v1/chat/completions",
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"n":2,"return_token_ids":true})"));
  const Json body = Json::parse(r.body);
  Ids prompt = ids_of("user:hi");
  prompt.push_back(256);  // written by the template
  EXPECT_EQ(body["prompt_token_ids"].get<Ids>(), prompt);
  for (const Json& one : body["choices"]) {
    EXPECT_EQ(one["token_ids"].size(), 4u);
    EXPECT_FALSE(one.contains("prompt_token_ids"));
  }
}

// The token belongs to the generated ids but not to the text.
TEST_F(TokenIds, EndWithTheStopThatTheRequestNames) {
  const auto end = std::ranges::find(six, six[3]) + 1;  // its first occurrence, perhaps earlier
  const Ids until(six.begin(), end);
  const Json one = choices(concat(R"("max_tokens":6,"stop_token_ids":[)", six[3], "]"))[0];
  EXPECT_EQ(one["finish_reason"], "stop");
  EXPECT_EQ(one["stop_reason"], six[3]);
  EXPECT_EQ(one["token_ids"].get<Ids>(), until);
  EXPECT_FALSE(choices(R"("max_tokens":6,"stop_token_ids":[256])")[0].contains("stop_reason"));
}

}  // namespace
}  // namespace trireme::test_token_ids
