// Long prompts and large responses: refused early, computed once, written by a worker.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_long_texts {
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

// Log-probabilities of a prompt with the model's maximum length: no token is generated after it.
TEST(LongTexts, AreScoredUpToTheLengthOfTheModel) {
  const RecordedServer server;
  const auto score = [&](size_t tokens, int max_tokens) {
    return ask(server, "/v1/completions",
               {{"prompt", std::string(tokens, 'p')},
                {"max_tokens", max_tokens},
                {"echo", true},
                {"logprobs", 1}});
  };
  const Response r = score(512, 0);
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(Json::parse(r.body)["choices"][0]["logprobs"]["tokens"].size(), 512u);
  EXPECT_EQ(score(512, 1).status, 400);
  EXPECT_EQ(score(513, 0).status, 400);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

// A text with too many bytes is refused by their number: it is not tokenized.
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

// Such responses are written by a worker, and sent separately from their heads.
TEST(LongTexts, OfResponsesAreReported) {
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

// The data of an echoed prompt is returned with each of its choices, and computed once.
TEST(LongTexts, OfPromptsAreComputedOnceForAllTheyAreReportedWith) {
  const RecordedServer server;
  Json fields = {{"prompt", std::string(100, 'q')},
                 {"max_tokens", 3},
                 {"n", 3},
                 {"temperature", 0},
                 {"ignore_eos", true},
                 {"echo", true},
                 {"logprobs", 1},
                 {"prompt_logprobs", 0}};
  const Json whole = Json::parse(ask(server, "/v1/completions", fields).body);
  ASSERT_EQ(whole["choices"].size(), 3u) << whole;
  const Json& first = whole["choices"][0];
  EXPECT_EQ(first["logprobs"]["tokens"].size(), 103u);
  EXPECT_EQ(first["prompt_logprobs"].size(), 100u);
  for (const Json& choice : whole["choices"])
    for (const char* field : {"text", "logprobs", "prompt_logprobs"})
      EXPECT_EQ(choice[field], first[field]) << field;
  const std::string metrics = server.ask(get("/metrics")).body;
  const size_t at = metrics.find("\nvllm:iteration_tokens_total_sum");
  ASSERT_NE(at, std::string::npos);
  EXPECT_LT(std::stod(metrics.substr(metrics.find("} ", at) + 2)), 200) << "of each text";
  fields.erase("prompt_logprobs");
  fields["stream"] = true;
  const std::string events = ask(server, "/v1/completions", fields).body;
  std::map<int, std::string> texts;
  for (size_t from = 0; (from = events.find("data: {", from)) != std::string::npos; ++from) {
    const std::string data = events.substr(from + 6, events.find("\n\n", from) - from - 6);
    const Json choice = Json::parse(data)["choices"][0];
    texts[choice["index"]] += choice["text"].get<std::string>();
  }
  ASSERT_EQ(texts.size(), 3u) << events;
  for (const auto& [index, text] : texts)
    EXPECT_EQ(text, first["text"].get<std::string>()) << index;
}

}  // namespace
}  // namespace trireme::test_long_texts
