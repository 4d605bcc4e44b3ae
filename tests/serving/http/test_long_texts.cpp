// Long prompts and large answers: refused early, written by a worker.
#include <nlohmann/json.hpp>

#include "tests/serving/http/recorded_server.h"

namespace trireme {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

Response ask(const RecordedServer& server, const std::string& path, Json fields) {
  fields["model"] = "m";
  return server.ask(post(path, fields.dump()));
}

RecordedServerOptions with_room() {
  RecordedServerOptions options;
  options.scheduler.max_model_len = 4096;
  return options;
}

// A text whose bytes alone are too many is told by them: its tokens are not known.
TEST(LongTexts, AreNotLookedAtWhereTheyAreTooLong) {
  const RecordedServer server;
  const std::string text(13 * 513, 'p');
  const Json message = {{"role", "user"}, {"content", text}};
  for (const auto& [path, field, value] :
       {std::tuple{"/v1/completions", "prompt", Json(text)},
        {"/v1/completions", "prompt", Json{"short", text}},
        {"/v1/chat/completions", "messages", Json::array({message})},
        {"/v1/embeddings", "input", Json(text)}}) {
    const Response r = ask(server, path, {{field, value}});
    EXPECT_EQ(r.status, 400) << path;
    const Json error = Json::parse(r.body)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded") << path;
    EXPECT_EQ(error["param"], field) << path;
    EXPECT_NE(error["message"].get<std::string>().find("bytes"), std::string::npos) << error;
  }
  EXPECT_EQ(ask(server, "/tokenize", {{"prompt", text}}).status, 200);
}

// Such answers are written by a worker, and sent apart from their heads.
TEST(LongTexts, OfAnswersAreTold) {
  const RecordedServer server;
  const Response r =
      ask(server, "/v1/completions",
          {{"prompt", "hi"}, {"max_tokens", 400}, {"logprobs", 20}, {"ignore_eos", true}});
  ASSERT_EQ(r.status, 200);
  EXPECT_GT(std::ssize(r.body), kQuickBytes);
  EXPECT_EQ(Json::parse(r.body)["choices"][0]["logprobs"]["tokens"].size(), 400u);
}

TEST(LongTexts, OfPromptsEnterTheEngineAsOftenAsThereAreChoices) {
  const RecordedServer server(with_room());
  const std::string prompt(3000, 'a');
  const Json several = Json::parse(ask(server, "/v1/completions",
                                       {{"prompt", prompt},
                                        {"max_tokens", 5},
                                        {"n", 8},
                                        {"temperature", 0},
                                        {"ignore_eos", true}})
                                       .body);
  ASSERT_EQ(several["choices"].size(), 8u) << several;
  for (const Json& one : several["choices"]) EXPECT_EQ(one["text"], several["choices"][0]["text"]);
  const Json embedded = Json::parse(ask(server, "/v1/embeddings", {{"input", prompt}}).body);
  EXPECT_EQ(embedded["data"][0]["embedding"].size(), 3u);
}

}  // namespace
}  // namespace trireme
