// Memory that a server uses for responses of /tokenize and /detokenize.
#include <nlohmann/json.hpp>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_tokenize {
namespace {

using namespace test;

constexpr int kLetters = 500'000;  // a response of 2 MB, counted as 4 MB
constexpr int kReceiveBuffer = 4096;

std::string bearer_of(const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; }

std::string long_text(const std::string& key) {
  return post("/tokenize", R"({"prompt":")" + std::string(kLetters, 'x') + R"("})", bearer_of(key));
}

// A client that reads the head of a response and then stops reading.
class SlowReader {
 public:
  SlowReader(int port, const std::string& key) : client_(port, kReceiveBuffer) {
    EXPECT_TRUE(client_.send(long_text(key)));
    EXPECT_TRUE(client_.receive_until("\r\n\r\n"));
    EXPECT_TRUE(client_.buffer().starts_with("HTTP/1.1 200")) << client_.buffer().substr(0, 500);
  }
  void hang_up() { client_.hang_up(); }

 private:
  RawClient client_;
};

TEST(Tokenize, HoldsOnlySoMuchForWhoReadsSlowly) {
  RecordedServerOptions options;
  options.http.keys = ApiKeys({"one", "two"}, {});
  options.responses = {.all = 13 << 20, .of_a_key = 9 << 20};
  RecordedServer server(options);
  SlowReader first(server.port(), "one"), second(server.port(), "one");
  const Response third = server.ask(long_text("one"));
  EXPECT_EQ(third.status, 503) << "beyond what one key may hold";
  EXPECT_EQ(error_code_of(third), "server_overloaded");
  SlowReader other(server.port(), "two");
  EXPECT_EQ(server.ask(long_text("two")).status, 503) << "beyond what all may hold";
  // A short one always gets a response.
  EXPECT_EQ(server.ask(post("/tokenize", R"({"prompt":"x"})", bearer_of("one"))).status, 200);
  first.hang_up();
  EXPECT_TRUE(eventually([&] { return server.ask(long_text("one")).status == 200; }));
  second.hang_up();
  other.hang_up();
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
  EXPECT_EQ(server.ask(long_text("two")).status, 200);
}

TEST(Tokenize, BoundsAResponse) {
  RecordedServerOptions options;
  options.responses = {.whole = 100'000, .always = 10'000};
  RecordedServer server(options);
  const auto ask = [&](const char* path, const std::string& body) {
    const Response r = server.ask(post(path, body));
    return r.status == 200 ? "200" : concat(r.status, " ", error_code_of(r));
  };
  const auto text = [](int letters, const char* more) {
    return R"({"prompt":")" + std::string(static_cast<size_t>(letters), 'x') + "\"" + more + "}";
  };
  EXPECT_EQ(ask("/tokenize", text(9'000, "")), "200");
  EXPECT_EQ(ask("/tokenize", text(8'000, R"(,"return_token_strs":true)")), "200");
  EXPECT_EQ(ask("/tokenize", text(11'000, R"(,"return_token_strs":true)")), "400 answer_too_large");
  EXPECT_EQ(ask("/tokenize", text(20'000, "")), "400 answer_too_large");
  const auto ids = [](int count) {
    std::string list = R"({"tokens":[1)";
    for (int i = 1; i < count; ++i) list += ",1";
    return list + "]}";
  };
  EXPECT_EQ(ask("/detokenize", ids(10'000)), "200");
  EXPECT_EQ(ask("/detokenize", ids(101'000)), "400 answer_too_large");
  EXPECT_EQ(ask("/detokenize", ids(17'000)), "400 answer_too_large") << "written as \\u0001";
  EXPECT_EQ(ask("/detokenize", ids((1 << 17) + 1)), "400 invalid_value");
}

std::string tokenized(const RecordedServer& server, const std::string& fields) {
  const Response r =
      server.ask(post("/tokenize", R"({"messages":[{"role":"user","content":"a"},)"
                                   R"({"role":"assistant","content":"b","plan":"p"}])" +
                                       fields + "}"));
  const nlohmann::json body = nlohmann::json::parse(r.body);
  if (r.status != 200)
    return concat(r.status, " ", body["error"]["param"].get<std::string>(), ": ",
                  body["error"]["message"].get<std::string>());
  const std::vector<int32_t> ids = body["tokens"].get<std::vector<int32_t>>();
  return server.tokenizer->decode(ids);
}

constexpr const char* kTool =
    R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

TEST(Tokenize, ChatsHaveTheTemplateThatTransformersChoose) {
  RecordedServerOptions options;
  options.chat = {{"default", "D{% for m in messages %}{{ m.content }}{% endfor %}"},
                  {"tool_use", "T{{ tools | length }}"},
                  {"rag", "R{{ documents[0].text }}"}};
  const RecordedServer server(options);
  EXPECT_EQ(tokenized(server, ""), "Dab");
  EXPECT_EQ(tokenized(server, kTool), "T1");
  EXPECT_EQ(tokenized(server, R"(,"chat_template":"rag","documents":[{"text":"x"}])"), "Rx");
  EXPECT_TRUE(
      tokenized(server, R"(,"chat_template":"{{ 1 }}")")
          .starts_with("400 chat_template: chat_template \"{{ 1 }}\" is not a chat template"));
  // Members that the rendering template does not read are refused by name.
  EXPECT_TRUE(tokenized(server, R"(,"documents":[{"text":"x"}])").starts_with("400 documents: "));
  EXPECT_TRUE(
      tokenized(server, concat(R"(,"chat_template":"default")", kTool)).starts_with("400 tools: "));
  EXPECT_EQ(tokenized(server, R"(,"continue_final_message":true)"), "Dab");
  EXPECT_TRUE(tokenized(server, R"(,"continue_final_message":true,"add_generation_prompt":true)")
                  .starts_with("400 continue_final_message: "));
}

TEST(Tokenize, ChatsWithoutADefaultNameATemplate) {
  RecordedServerOptions options;
  options.chat = {{"rag", "R{{ documents[0].text }}"}, {"short", "S"}};
  const RecordedServer server(options);
  EXPECT_TRUE(tokenized(server, "").starts_with("400 chat_template: "));
  EXPECT_EQ(tokenized(server, R"(,"chat_template":"short")"), "S");
}

// Text that the model does not receive is reported in the log, with the request.
TEST(Tokenize, NamesTextOfMessagesThatNoTemplateReadsOnce) {
  RecordedServerOptions options;
  options.chat = {{"default", "{{ messages[1].thinking }}{{ messages[1].content }}"}};
  const RecordedServer server(options);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(tokenized(server, ""), "b");
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string says =
      ": a message has text in \"plan\", which the chat template does not read";
  const size_t first = log.find(says);
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(says, first + 1), std::string::npos) << log;
  EXPECT_NE(log.find("request "), std::string::npos) << log;
}

TEST(TenantBudgets, KeepAPartForOthers) {
  TenantBudgets budgets(100, 60);
  ByteShare one(budgets.of("key-0")), two(budgets.of("key-1")), nobody(budgets.of(""));
  EXPECT_FALSE(one.grow(61));
  EXPECT_TRUE(one.grow(60));
  EXPECT_FALSE(ByteShare(budgets.of("key-0")).grow(1));
  EXPECT_FALSE(two.grow(41));
  EXPECT_TRUE(two.grow(40));
  EXPECT_EQ(budgets.left(), 0);
  one.release();
  EXPECT_EQ(budgets.left(), 60);
  EXPECT_TRUE(nobody.grow(60));
  EXPECT_FALSE(one.grow(1));
  nobody.release();
  EXPECT_TRUE(one.grow(60));
}

}  // namespace
}  // namespace trireme::test_tokenize
