#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "serving/api/api_error.h"
#include "serving/api/generation_response.h"

namespace trireme::test_generation_response {
namespace {

using Json = nlohmann::ordered_json;

// Response to one prompt of byte tokens, which receives its tokens letter by letter.
class ResponseRecorder {
 public:
  explicit ResponseRecorder(ResponseForm form,
                            std::vector<std::vector<int32_t>> prompts = {{'h', 'i'}})
      : response({.id = "chatcmpl-1", .created = 1, .model = "m", .fingerprint = "f"},
                 std::move(form), *tokenizer, std::move(prompts)) {}

  void letter(char c, std::optional<FinishReason> finish = {}, size_t choice = 0) {
    token({.id = static_cast<unsigned char>(c), .logprob = -0.5, .top = {{'x', -0.25}}}, finish,
          choice);
  }
  void token(const OutputToken& token, std::optional<FinishReason> finish = {}, size_t choice = 0) {
    response.accept(choice, {}, std::span(&token, 1), 0, finish, frames);
  }
  // Events so far, without "data: " and the blank lines.
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    size_t at = 0;
    while (at < frames.size()) {
      EXPECT_EQ(frames.substr(at, 6), "data: ");
      const size_t end = frames.find("\n\n", at);
      out.push_back(frames.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return out;
  }

  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  GenerationResponse response;
  std::string frames;
};

ResponseForm chat_stream(bool usage) {
  return {.chat = true, .stream = true, .include_usage = usage};
}

TEST(GenerationResponse, StreamsAChatByteForByte) {
  ResponseRecorder recorder(chat_stream(true));
  recorder.letter('H');
  recorder.letter('e', FinishReason::kLength);
  const std::string head =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",)"
      R"("system_fingerprint":"f","choices":[)";
  EXPECT_EQ(
      recorder.frames,
      head +
          R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],)"
          R"("usage":null})"
          "\n\n" +
          head +
          R"({"index":0,"delta":{"content":"H"},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n" +
          head +
          R"({"index":0,"delta":{"content":"e"},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n" +
          head +
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null})"
          "\n\n" +
          head +
          R"(],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,)"
          R"("prompt_tokens_details":{"cached_tokens":0}}})"
          "\n\n" +
          "data: [DONE]\n\n");
  EXPECT_TRUE(recorder.response.done());
}

TEST(GenerationResponse, LeavesUsageOutUnlessAsked) {
  ResponseRecorder recorder(chat_stream(false));
  recorder.letter('H', FinishReason::kLength);
  EXPECT_EQ(recorder.frames.find("usage"), std::string::npos);
  EXPECT_EQ(recorder.events().back(), "[DONE]");
  ResponseForm form = chat_stream(true);
  form.usage_in_each = true;
  ResponseRecorder each(form);
  each.letter('H');
  EXPECT_EQ(Json::parse(each.events().back())["usage"]["total_tokens"], 3);
}

TEST(GenerationResponse, StreamsACompletion) {
  ResponseRecorder recorder(ResponseForm{.stream = true});
  recorder.letter('H');
  recorder.letter('.', FinishReason::kStop);  // a stop token, without text
  const std::vector<std::string> events = recorder.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(
      events[0],
      R"({"id":"chatcmpl-1","object":"text_completion","created":1,"model":"m","system_fingerprint":"f",)"
      R"("choices":[{"index":0,"text":"H","logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["text"], "");
  EXPECT_EQ(recorder.response.usage().completion_tokens, 2);  // including the stop token
}

TEST(GenerationResponse, ReportsThePromptInItsOwnMember) {
  const std::vector<OutputToken> prompt = {
      {.id = 'i', .logprob = -2, .top = {{'o', -0.5}, {'i', -2}}, .rank = 2},
      {.id = '!', .logprob = -INFINITY, .top = {}, .rank = 7}};
  const char* want = R"([null,{"105":{"logprob":-2,"rank":2,"decoded_token":"i"},)"
                     R"("111":{"logprob":-0.5,"rank":1,"decoded_token":"o"}},)"
                     R"({"33":{"logprob":-9999,"rank":7,"decoded_token":"!"}}])";
  for (const bool chat : {false, true}) {
    ResponseRecorder recorder({.chat = chat, .prompt_logprobs = 2, .n = 2}, {{'h', 'i', '!'}});
    ResponseRecorder less({.chat = chat, .prompt_logprobs = 0}, {{'h', 'i'}});
    less.response.accept(0, std::span(prompt).first(1), {}, 0, FinishReason::kLength, less.frames);
    EXPECT_EQ(less.response.body().find("111"), std::string::npos);
    const OutputToken token{.id = 'x', .logprob = -1};
    for (const size_t i : {0, 1})  // the second sequence has the first one's prompt
      recorder.response.accept(i, i == 0 ? std::span(prompt) : std::span<const OutputToken>(),
                               std::span(&token, 1), 0, FinishReason::kLength, recorder.frames);
    const Json body = Json::parse(recorder.response.body());
    const Json& where = chat ? body : body["choices"][1];
    EXPECT_EQ(where["prompt_logprobs"].dump(), Json::parse(want).dump());
    EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  }
}

// Echoed prompts count towards the size of a response like completions, and every choice of a
// completion echoes it.
TEST(GenerationResponse, CountsWhatItReportsOfPrompts) {
  const std::vector<OutputToken> prompt(50, {.id = 'i', .logprob = -2, .top = {}, .rank = 2});
  const auto held = [&](bool chat, int64_t n, int64_t returned) {
    ResponseRecorder one({.chat = chat, .prompt_logprobs = 3, .n = n, .returned = returned},
                         {std::vector<int32_t>(51, 'i')});
    one.response.accept(0, prompt, {}, 0, {}, one.frames);
    return one.response.held_bytes();
  };
  const int64_t once = held(true, 1, 0);
  EXPECT_GE(once, 50 * 4 * 50);
  EXPECT_EQ(held(true, 4, 0), once);
  EXPECT_EQ(held(false, 4, 0), 4 * once);
  EXPECT_EQ(held(false, 4, 3), 3 * once);
}

// The two most probable choices per token out of each prompt's three, best first.
TEST(GenerationResponse, ReportsTheBestChoices) {
  ResponseRecorder recorder({.n = 3, .returned = 2}, {{'a'}, {'b'}});
  const auto write = [&](size_t choice, const std::string& text, double logprob) {
    for (size_t i = 0; i < text.size(); ++i)
      recorder.token({.id = static_cast<unsigned char>(text[i]), .logprob = logprob},
                     i + 1 == text.size() ? std::optional(FinishReason::kLength) : std::nullopt,
                     choice);
  };
  write(0, "long", -0.5);
  write(1, "x", -1);
  write(2, "yy", -0.25);
  write(3, "one", -3);
  write(4, "two", -2);
  write(5, "three", -1);
  const Json body = Json::parse(recorder.response.body());
  std::vector<std::string> texts;
  for (const Json& choice : body["choices"]) {
    EXPECT_EQ(choice["index"], texts.size());
    texts.push_back(choice["text"]);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"yy", "long", "three", "two"}));
  EXPECT_EQ(body["usage"]["completion_tokens"], 4 + 1 + 2 + 3 + 3 + 5);
}

TEST(GenerationResponse, GivesTheWholeTextToo) {
  ResponseForm form{.chat = true};
  ResponseRecorder recorder(form);
  recorder.letter('H');
  recorder.letter('i', FinishReason::kLength);
  EXPECT_EQ(recorder.frames, "");
  EXPECT_EQ(
      recorder.response.body(),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","system_fingerprint":"f",)"
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null},)"
      R"("logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":2,)"
      R"("total_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}})");
  ResponseRecorder completion(ResponseForm{});
  completion.letter('H', FinishReason::kLength);
  EXPECT_EQ(
      completion.response.body(),
      R"({"id":"chatcmpl-1","object":"text_completion","created":1,"model":"m","system_fingerprint":"f",)"
      R"("choices":[{"index":0,"text":"H","logprobs":null,"finish_reason":"length"}],)"
      R"("usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,)"
      R"("prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST(GenerationResponse, EndsAtAStopStringAndIgnoresWhatFollows) {
  ResponseForm form{.chat = true, .stream = true};
  form.text.stops = {"XY"};
  ResponseRecorder recorder(form);
  for (const char c : {'a', 'X'}) recorder.letter(c);
  EXPECT_FALSE(recorder.response.ended(0));
  recorder.letter('Y');
  EXPECT_TRUE(recorder.response.ended(0));
  const std::string before = recorder.frames;
  recorder.letter('b', FinishReason::kLength);
  EXPECT_EQ(recorder.frames, before);
  EXPECT_EQ(recorder.response.completion_tokens(0), 3);
  EXPECT_STREQ(recorder.response.finish_reason(0), "stop");
  const std::vector<std::string> events = recorder.events();
  for (size_t i = 0; i + 1 < events.size(); ++i)
    EXPECT_EQ(Json::parse(events[i])["choices"][0]["delta"].dump().find('X'), std::string::npos);
}

// The member is vLLM's; other responses match OpenAI's format byte for byte.
TEST(GenerationResponse, NamesTheStopThatTheClientAskedFor) {
  const auto last_of = [](bool chat, bool stream,
                          const std::function<void(ResponseRecorder&)>& write) {
    ResponseForm form{.chat = chat, .stream = stream, .stop_ids = {'.'}};
    form.text.stops = {"AB", "XY"};
    ResponseRecorder recorder(form);
    write(recorder);
    const std::vector<std::string> events = recorder.events();
    return Json::parse(stream ? events.at(events.size() - 2)
                              : recorder.response.body())["choices"][0];
  };
  for (const bool chat : {false, true}) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(concat("chat ", chat, ", stream ", stream));
      const Json by_text = last_of(chat, stream, [](ResponseRecorder& recorder) {
        for (const char c : {'a', 'X', 'Y'}) recorder.letter(c);
      });
      EXPECT_EQ(by_text["finish_reason"], "stop");
      EXPECT_EQ(by_text["stop_reason"], "XY");
      const Json by_token = last_of(chat, stream, [](ResponseRecorder& recorder) {
        recorder.letter('.', FinishReason::kStop);
      });
      EXPECT_EQ(by_token["finish_reason"], "stop");
      EXPECT_EQ(by_token["stop_reason"], '.');
      for (const auto& last : {std::pair{'!', FinishReason::kStop}, {'.', FinishReason::kLength}}) {
        const Json other = last_of(chat, stream, [&](ResponseRecorder& recorder) {
          recorder.letter(last.first, last.second);
        });
        EXPECT_TRUE(other.contains("finish_reason"));
        EXPECT_FALSE(other.contains("stop_reason")) << last.first;
      }
    }
  }
}

// The token ids of a stream's events together equal those of the whole response, including tokens
// whose text is held back or empty.
TEST(GenerationResponse, ReportsIdsOfTokens) {
  for (const bool chat : {false, true}) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(concat("chat ", chat, ", stream ", stream));
      ResponseForm form{.chat = chat, .stream = stream, .token_ids = true, .n = 2};
      form.text.stops = {"XYZ"};
      ResponseRecorder recorder(form);
      for (const char c : {'a', 'X', 'Y'}) recorder.letter(c, {}, 0);
      recorder.letter('b', {}, 1);
      recorder.letter('c', FinishReason::kLength, 0);
      recorder.letter('.', FinishReason::kStop, 1);
      std::map<int, std::vector<int32_t>> ids, prompts;
      const auto take = [&](const Json& body) {
        for (const Json& choice : body["choices"]) {
          const int index = choice["index"];
          for (const int32_t id : choice.value("token_ids", Json::array()))
            ids[index].push_back(id);
          const Json& of_prompt = chat ? body : choice;
          if (!of_prompt.contains("prompt_token_ids")) continue;
          EXPECT_TRUE(prompts[index].empty()) << "twice";
          prompts[index] = of_prompt["prompt_token_ids"].get<std::vector<int32_t>>();
        }
      };
      const std::vector<std::string> events = recorder.events();
      for (size_t i = 0; i + 1 < events.size(); ++i) take(Json::parse(events[i]));
      if (!stream) take(Json::parse(recorder.response.body()));
      EXPECT_EQ(ids[0], (std::vector<int32_t>{'a', 'X', 'Y', 'c'}));
      EXPECT_EQ(ids[1], (std::vector<int32_t>{'b', '.'}));
      EXPECT_EQ(prompts[0], (std::vector<int32_t>{'h', 'i'}));
      EXPECT_EQ(prompts[1], prompts[0]);
    }
  }
  ResponseRecorder not_asked(ResponseForm{});
  not_asked.letter('a', FinishReason::kLength);
  EXPECT_EQ(not_asked.response.body().find("token_ids"), std::string::npos);
}

TEST(GenerationResponse, MixesChoicesByTheirIndex) {
  ResponseForm form = chat_stream(true);
  form.n = 2;
  ResponseRecorder recorder(form);
  recorder.letter('a', {}, 0);
  recorder.letter('c', {}, 1);
  recorder.letter('b', FinishReason::kLength, 0);
  recorder.letter('d', FinishReason::kLength, 1);
  std::map<int, std::string> texts;
  std::map<int, int> roles, finishes;
  int usages = 0;
  const std::vector<std::string> events = recorder.events();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    EXPECT_EQ(event["id"], "chatcmpl-1");
    EXPECT_EQ(event["created"], 1);
    if (event["choices"].empty()) {
      EXPECT_EQ(i + 2, events.size());
      EXPECT_EQ(event["usage"]["prompt_tokens"], 2);  // a single prompt
      EXPECT_EQ(event["usage"]["completion_tokens"], 4);
      ++usages;
      continue;
    }
    const Json& choice = event["choices"][0];
    const int index = choice["index"];
    if (choice["delta"].contains("role")) ++roles[index];
    if (choice["delta"].contains("content"))
      texts[index] += choice["delta"]["content"].get<std::string>();
    if (!choice["finish_reason"].is_null()) ++finishes[index];
  }
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(usages, 1);
  EXPECT_EQ(texts[0], "ab");
  EXPECT_EQ(texts[1], "cd");
  EXPECT_EQ(roles, (std::map<int, int>{{0, 1}, {1, 1}}));
  EXPECT_EQ(finishes, (std::map<int, int>{{0, 1}, {1, 1}}));
}

TEST(GenerationResponse, ReportsLogProbabilitiesOfAChat) {
  ResponseForm form{.chat = true, .top_logprobs = 1};
  form.text.report_tokens = true;
  ResponseRecorder recorder(form);
  recorder.letter('a');
  recorder.letter('\xC3');
  recorder.letter('\xA9', FinishReason::kLength);
  const Json logprobs = Json::parse(recorder.response.body())["choices"][0]["logprobs"];
  EXPECT_EQ(
      logprobs["content"].dump(),
      R"([{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"x","logprob":-0.25,"bytes":[120]}]},)"
      R"({"token":"bytes:\\xc3","logprob":-0.5,"bytes":[195],"top_logprobs":)"
      R"([{"token":"x","logprob":-0.25,"bytes":[120]}]},)"
      R"({"token":"bytes:\\xa9","logprob":-0.5,"bytes":[169],"top_logprobs":)"
      R"([{"token":"x","logprob":-0.25,"bytes":[120]}]}])");
  EXPECT_TRUE(logprobs["refusal"].is_null());
}

// One name per token: the sampled one's is a key of its own top log-probabilities, which scorers
// look up.
TEST(GenerationResponse, NamesAChosenTokenOnceInCompletions) {
  const std::string text =
      "a\xF0\x9F\x98\x8A\xFF"
      "bSTOP";
  for (const bool stream : {false, true}) {
    ResponseForm form{.stream = stream, .echo = true, .top_logprobs = 1};
    form.text.report_tokens = true;
    form.text.stops = {"STOP"};
    ResponseRecorder recorder(form, {{0xC3, 0xA9}});
    const std::vector<OutputToken> prompt = {{.id = 0xA9, .logprob = -1, .top = {{0xA9, -1}}}};
    for (size_t i = 0; i < text.size(); ++i) {
      const auto id = static_cast<unsigned char>(text[i]);
      const OutputToken chosen{.id = id, .logprob = -1, .top = {{id, -1}}};
      recorder.response.accept(0, i == 0 ? std::span(prompt) : std::span<const OutputToken>(),
                               std::span(&chosen, 1), 0, {}, recorder.frames);
    }
    std::vector<std::string> names;
    const auto read = [&](const Json& choice) {
      if (choice["logprobs"].is_null()) return;
      const Json& logprobs = choice["logprobs"];
      for (size_t i = 0; i < logprobs["tokens"].size(); ++i) {
        names.push_back(logprobs["tokens"][i].get<std::string>());
        if (names.size() == 1) continue;  // the first token has no log-probabilities
        EXPECT_EQ(logprobs["top_logprobs"][i].dump(), Json({{names.back(), -1}}).dump());
      }
    };
    if (stream) {
      for (const std::string& event : recorder.events())
        if (event != "[DONE]" && !Json::parse(event)["choices"].empty())
          read(Json::parse(event)["choices"][0]);
    } else {
      read(Json::parse(recorder.response.body())["choices"][0]);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"bytes:\\xc3", "bytes:\\xa9", "a", "bytes:\\xf0",
                                               "bytes:\\x9f", "bytes:\\x98", "bytes:\\x8a",
                                               "bytes:\\xff", "b"}));
  }
}

TEST(GenerationResponse, BytesOfAChatsTokensAreTheText) {
  ResponseForm form{.chat = true, .top_logprobs = 2};
  form.text.report_tokens = true;
  ResponseRecorder recorder(form);
  const std::string text = "a\xE2\x9C\x93";
  const int32_t end = recorder.tokenizer->eod_id();
  for (size_t i = 0; i <= text.size(); ++i) {
    const int32_t id = i < text.size() ? static_cast<unsigned char>(text[i]) : end;
    recorder.token({.id = id, .logprob = -1, .top = {{id, -1}, {end, -2}}},
                   i < text.size() ? std::optional<FinishReason>() : FinishReason::kStop);
  }
  const Json choice = Json::parse(recorder.response.body())["choices"][0];
  std::string bytes;
  for (const Json& token : choice["logprobs"]["content"]) {
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
    const Json& top = token["top_logprobs"][0];
    EXPECT_EQ(top["token"], token["token"]);
    EXPECT_EQ(top["bytes"], token["bytes"]);
  }
  EXPECT_EQ(bytes, text);
  EXPECT_EQ(bytes, choice["message"]["content"].get<std::string>());
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"][1]["token"], "<|endoftext|>");
}

TEST(GenerationResponse, ReportsLogProbabilitiesInEventsOnce) {
  ResponseForm form{.chat = true, .stream = true, .top_logprobs = 0};
  form.text.report_tokens = true;
  form.text.stops = {"bcX"};
  ResponseRecorder recorder(form);
  for (const char c : {'a', 'b', 'c'}) recorder.letter(c);
  recorder.letter('d', FinishReason::kLength);
  std::string text, tokens;
  for (const std::string& event : recorder.events()) {
    if (event == "[DONE]") continue;
    const Json choice = Json::parse(event)["choices"][0];
    if (choice["delta"].contains("content")) text += choice["delta"]["content"].get<std::string>();
    if (choice["logprobs"].is_null()) continue;
    for (const Json& token : choice["logprobs"]["content"])
      tokens += token["token"].get<std::string>();
  }
  EXPECT_EQ(text, "abcd");
  EXPECT_EQ(tokens, "abcd");
}

TEST(GenerationResponse, EchoesThePromptWithItsLogProbabilities) {
  ResponseForm form{.echo = true, .without_text = true, .top_logprobs = 1};
  form.text.report_tokens = true;
  ResponseRecorder recorder(form, {{'a', 'b', 'c'}});
  const std::vector<OutputToken> prompt = {{.id = 'b', .logprob = -1, .top = {{'b', -1}}},
                                           {.id = 'c', .logprob = -2, .top = {{'x', -0.5}}}};
  const OutputToken chosen{.id = 'd', .logprob = -3};
  recorder.response.accept(0, prompt, std::span(&chosen, 1), 0, FinishReason::kLength,
                           recorder.frames);
  const Json body = Json::parse(recorder.response.body());
  EXPECT_EQ(body["choices"][0]["text"], "abc");
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_EQ(body["choices"][0]["logprobs"].dump(),
            R"({"tokens":["a","b","c"],"token_logprobs":[null,-1,-2],)"
            R"("top_logprobs":[null,{"b":-1},{"c":-2,"x":-0.5}],"text_offset":[0,1,2]})");
}

TEST(GenerationResponse, EchoesThePromptOfAStream) {
  ResponseForm form{.stream = true, .echo = true};
  ResponseRecorder recorder(form);
  recorder.letter('!', FinishReason::kLength);
  EXPECT_EQ(Json::parse(recorder.events()[0])["choices"][0]["text"], "hi!");
}

TEST(GenerationResponse, WritesNumbersThatJsonHas) {
  ResponseForm form{.top_logprobs = 1, .tokens_as_ids = true};
  form.text.report_tokens = true;
  ResponseRecorder recorder(form);
  recorder.token(
      {.id = 'a', .logprob = -std::numeric_limits<double>::infinity(), .top = {{0xC3, -1}}},
      FinishReason::kLength);
  EXPECT_EQ(Json::parse(recorder.response.body())["choices"][0]["logprobs"].dump(),
            R"({"tokens":["token_id:97"],"token_logprobs":[-9999],)"
            R"("top_logprobs":[{"token_id:97":-9999,"token_id:195":-1}],"text_offset":[0]})");
  form.tokens_as_ids = false;
  ResponseRecorder bytes(form);
  bytes.token({.id = 'a', .logprob = -1, .top = {{0xC3, -1}}}, FinishReason::kLength);
  EXPECT_EQ(Json::parse(bytes.response.body())["choices"][0]["logprobs"]["top_logprobs"].dump(),
            R"([{"a":-1,"bytes:\\xc3":-1}])");
}

TEST(GenerationResponse, TextOfAStreamIsTheTextOfTheWhole) {
  for (const char* stop : {"", "cd", "\xC3\xA9"}) {
    ResponseForm form{.chat = true};
    if (*stop != 0) form.text.stops = {stop};
    ResponseForm stream_form = form;
    stream_form.stream = true;
    ResponseRecorder whole(form), stream(stream_form);
    const std::string text = "ab\xC3\xA9 cde\xE2\x82";
    for (size_t i = 0; i < text.size(); ++i) {
      const auto finish = i + 1 == text.size() ? std::optional(FinishReason::kLength)
                                               : std::optional<FinishReason>();
      whole.letter(text[i], finish);
      stream.letter(text[i], finish);
    }
    std::string streamed;
    for (const std::string& event : stream.events())
      if (event != "[DONE]" && Json::parse(event)["choices"][0]["delta"].contains("content"))
        streamed += Json::parse(event)["choices"][0]["delta"]["content"].get<std::string>();
    const Json message = Json::parse(whole.response.body())["choices"][0]["message"];
    EXPECT_EQ(streamed, message["content"].get<std::string>());
  }
}

}  // namespace
}  // namespace trireme::test_generation_response
