// Arrival times of tokens in recorded event streams.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/bench/stream_timer.h"

namespace trireme::test_stream_timer {
namespace {

std::string completion(const std::string& text, const std::string& finish = "null") {
  return R"({"choices":[{"index":0,"text":")" + text + R"(","finish_reason":)" + finish +
         R"(}],"usage":null})";
}

std::string chat(const std::string& delta, const std::string& finish = "null") {
  return R"({"choices":[{"index":0,"delta":)" + delta + R"(,"finish_reason":)" + finish + "}]}";
}

TEST(StreamTimer, TimesCompletions) {
  RequestOutcome out;
  StreamTimer timer(out, false);
  timer.event(completion("He"), 0.5);
  timer.event(completion(""), 0.75);  // a token without text
  timer.event(completion("llo", R"("length")"), 1.75);
  timer.event(
      R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}})", 7);
  timer.event("[DONE]", 8);
  timer.finish(99);
  EXPECT_DOUBLE_EQ(out.ttft, 0.5);
  EXPECT_EQ(out.itl, (std::vector<double>{0.25, 1.0}));
  EXPECT_DOUBLE_EQ(out.e2el, 1.75);
  EXPECT_EQ(out.input_tokens, 9);
  EXPECT_EQ(out.output_tokens, 4);
  EXPECT_TRUE(timer.has_usage());
}

TEST(StreamTimer, AChatsFirstTokenIsNotItsRole) {
  RequestOutcome out;
  StreamTimer timer(out, true);
  timer.event(chat(R"({"role":"assistant","content":""})"), 0.25);
  timer.event(chat(R"({"reasoning_content":"Hm"})"), 0.5);
  timer.event(chat(R"({"content":"Hi"})"), 1);
  timer.event(chat(R"({"tool_calls":[{"index":0}]})"), 2);
  timer.event(chat("{}", R"("stop")"), 4);
  timer.finish(5);
  EXPECT_DOUBLE_EQ(out.ttft, 0.5);
  EXPECT_EQ(out.itl, (std::vector<double>{0.5, 1}));
  EXPECT_DOUBLE_EQ(out.e2el, 4);
  EXPECT_FALSE(timer.has_usage());  // tokens are counted instead
  EXPECT_EQ(out.output_tokens, 3);
  EXPECT_EQ(out.input_tokens, 5);
}

TEST(StreamTimer, RefusesWhatIsNotACompleteResponse) {
  const auto finish = [](const std::vector<std::string>& events) {
    RequestOutcome out;
    StreamTimer timer(out, false);
    for (const std::string& event : events) timer.event(event, 1);
    timer.finish(1);
  };
  EXPECT_NO_THROW(finish({completion("a"), "[DONE]"}));
  EXPECT_THROW(finish({completion("a")}), InputError);  // truncated
  EXPECT_THROW(finish({"[DONE]"}), InputError);         // no tokens
  EXPECT_THROW(finish({"no JSON"}), InputError);
  EXPECT_THROW(finish({"[1]"}), InputError);
  EXPECT_THROW(finish({R"({"usage":{"prompt_tokens":-1}})"}), InputError);
  EXPECT_THROW(finish({completion("a"), R"({"error":{"message":"rank 3 lost"}})", "[DONE]"}),
               InputError);
}

TEST(ErrorMessage, IsTheServersOwn) {
  EXPECT_EQ(error_message_of(R"({"error":{"message":"queue full"}})"), "queue full");
  EXPECT_EQ(error_message_of("<html>"), "<html>");
  EXPECT_EQ(error_message_of(R"({"error":"text"})"), R"({"error":"text"})");
  EXPECT_EQ(error_message_of(std::string(9999, 'x')).size(), 300U);
}

}  // namespace
}  // namespace trireme::test_stream_timer
