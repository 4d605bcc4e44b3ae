// /v1/embeddings through HTTP.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_embedding_task {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

TEST(Service, EmbedsTexts) {
  RecordedServer server;
  const auto ask = [&](const std::string& fields) {
    return server.ask(post("/v1/embeddings", R"({"model":"m",)" + fields + "}"));
  };
  Response r = ask(R"("input":"hi")");
  ASSERT_EQ(r.status, 200) << r.body;
  const double x = next_of(std::vector<int32_t>{'h', 'i'}, 256), length = std::sqrt(x * x + 25);
  Json body = Json::parse(r.body);
  const std::vector<double> got = body["data"][0]["embedding"];
  ASSERT_EQ(got.size(), 3u);
  EXPECT_NEAR(got[0], x / length, 1e-7);
  EXPECT_NEAR(got[2], 4 / length, 1e-7);
  body["data"][0]["embedding"] = nullptr;
  EXPECT_EQ(body.dump(),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":null}],)"
            R"("model":"m","usage":{"prompt_tokens":2,"total_tokens":2}})");
  // Shortened vectors are normalized again; tokens are accepted as input.
  r = ask(R"("input":[104,105],"dimensions":2)");
  const std::vector<double> two = Json::parse(r.body)["data"][0]["embedding"];
  ASSERT_EQ(two.size(), 2u);
  EXPECT_NEAR(two[0], x / std::sqrt(x * x + 9), 1e-7);
  // More inputs than one batch, in their order; the maximum input length.
  std::string inputs;
  for (int i = 0; i < 300; ++i) inputs += concat(i == 0 ? "" : ",", "[", 1 + i % 250, ",3,5]");
  r = ask(R"("encoding_format":"base64","input":[)" + inputs + "]");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json data = Json::parse(r.body)["data"];
  ASSERT_EQ(data.size(), 300u);
  EXPECT_EQ(data[7]["embedding"], data[257]["embedding"]);
  EXPECT_NE(data[7]["embedding"], data[28]["embedding"]);
  EXPECT_EQ(ask(R"("input":")" + std::string(512, 'p') + "\"").status, 200);
  EXPECT_EQ(ask(R"("input":")" + std::string(513, 'p') + "\"").status, 400);
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

// Bytes of the first vector.
std::string decoded(const Response& r) {
  const std::string text = Json::parse(r.body)["data"][0]["embedding"];
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count >= 8) out += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return out;
}

TEST(Service, WritesEmbeddingsInOtherTypes) {
  RecordedServer server;
  const auto ask = [&](const std::string& fields) {
    return server.ask(post("/v1/embeddings", R"({"model":"m","input":"hi",)" + fields + "}"));
  };
  const std::vector<float> plain =
      Json::parse(ask(R"("dimensions":3)").body)["data"][0]["embedding"];
  const std::string little = decoded(ask(R"("encoding_format":"base64")"));
  ASSERT_EQ(little.size(), 12u);
  EXPECT_EQ(std::memcmp(little.data(), plain.data(), little.size()), 0);
  std::string big = decoded(ask(R"("encoding_format":"base64","endianness":"big")"));
  for (char* number = big.data(); number != big.data() + 12; number += 4)
    std::reverse(number, number + 4);
  EXPECT_EQ(big, little);
  for (const auto& [name, error] : {std::pair{"float16", 0x1p-11}, {"bfloat16", 0x1p-8}}) {
    const std::string half =
        decoded(ask(concat(R"("encoding_format":"base64","embed_dtype":")", name, "\"")));
    ASSERT_EQ(half.size(), 6u);
    for (size_t i = 0; i < 3; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, half.data() + 2 * i, 2);
      f16 h;
      bf16 b;
      h.bits = b.bits = bits;
      const float got =
          name == std::string("float16") ? static_cast<float>(h) : static_cast<float>(b);
      EXPECT_NEAR(got, plain[i], error * std::abs(plain[i])) << name;
    }
  }
  const std::vector<float> raw =
      Json::parse(ask(R"("normalize":false)").body)["data"][0]["embedding"];
  EXPECT_EQ(raw[1], 3.0f);
  EXPECT_EQ(raw[2], 4.0f);
}

TEST(Service, EmbedsPartsOfLongTexts) {
  RecordedServer server;
  const auto ask = [&](const std::string& input, const std::string& fields) {
    return Json::parse(
        server.ask(post("/v1/embeddings", R"({"model":"m","input":)" + input + fields + "}")).body);
  };
  const auto same = [&](const Json& a, const Json& b, int tokens) {
    EXPECT_EQ(a["data"], b["data"]);
    EXPECT_EQ(a["usage"]["prompt_tokens"], tokens);
  };
  same(ask(R"("hello world")", R"(,"truncate_prompt_tokens":3)"), ask(R"("rld")", ""), 3);
  same(ask(R"("hello world")", R"(,"truncate_prompt_tokens":4,"truncation_side":"right")"),
       ask(R"("hell")", ""), 4);
  same(ask("[5,6,7,8]", R"(,"truncate_prompt_tokens":2)"), ask("[7,8]", ""), 2);
  same(ask(R"("hi")", R"(,"truncate_prompt_tokens":3)"), ask(R"("hi")", ""), 2);
  const std::string text(600, 'p');  // 512 are used
  same(ask("\"x" + text + "\"", R"(,"truncate_prompt_tokens":-1)"),
       ask("\"" + text.substr(0, 512) + "\"", ""), 512);
  const Json refused = ask(R"("hi")", R"(,"truncate_prompt_tokens":513)");
  EXPECT_EQ(refused["error"]["param"], "truncate_prompt_tokens");
}

TEST(Service, NamesTheTextOfAListAtFault) {
  RecordedServer server;
  const auto message = [&](const char* path, const char* field, const std::string& texts) {
    const Response r =
        server.ask(post(path, concat(R"({"model":"m",")", field, "\":", texts, "}")));
    EXPECT_EQ(r.status, 400) << r.body;
    const Json error = Json::parse(r.body)["error"];
    EXPECT_EQ(error["param"], field);
    return error["message"].get<std::string>();
  };
  EXPECT_EQ(message("/v1/embeddings", "input", R"(["a","b",""])"), "input[2] has no tokens");
  EXPECT_EQ(message("/v1/embeddings", "input", R"("")"), "input has no tokens");
  EXPECT_EQ(message("/v1/completions", "prompt", R"(["a",""])"), "prompt[1] has no tokens");
  EXPECT_EQ(message("/v1/completions", "prompt", R"("")"), "the prompt has no tokens");
  const std::string text(600, 'p');
  const std::string long_text = "\"" + text + "\"";
  EXPECT_TRUE(message("/v1/embeddings", "input", R"(["a",)" + long_text + "]")
                  .starts_with("input[1] has 600 "));
  EXPECT_TRUE(message("/v1/completions", "prompt", R"(["a",)" + long_text + "]")
                  .starts_with("prompt[1] has 600 "));
  const std::string ids = "[" + std::string("7") + [] {
    std::string more;
    for (int i = 1; i < 600; ++i) more += ",7";
    return more;
  }() + "]";
  EXPECT_TRUE(message("/v1/embeddings", "input", "[[7]," + ids + "]")
                  .starts_with("input[1] has 600 tokens"));
  EXPECT_TRUE(message("/v1/completions", "prompt", "[[7]," + ids + "]")
                  .starts_with("prompt[1] has 600 tokens"));
}

TEST(Service, CancelsEmbeddingsOfWhoeverGoesAway) {
  RecordedServer server;
  server.gate.hold();
  {
    RawClient client(server.port());
    client.send(post("/v1/embeddings", R"({"model":"m","input":["a","b","c"]})"));
    EXPECT_TRUE(eventually([&] { return server.in_engine() > 0; }));
  }
  EXPECT_TRUE(eventually([&] { return server.sequences() == 0; }));
  server.gate.release();
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, HoldsOnlySoMuchOfEmbeddings) {
  RecordedServerOptions options;
  options.responses = {.whole = 10'000, .always = 2'000, .all = 6'000};
  RecordedServer server(options);
  const auto code = [&](int texts, const char* more) {
    std::string inputs;
    for (int i = 0; i < texts; ++i) inputs += concat(i == 0 ? "" : ",", "[1,", 1 + i % 250, "]");
    // The memory of the previous response is released shortly after its last byte.
    EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
    const Response r = server.ask(
        post("/v1/embeddings", concat(R"({"model":"m","input":[)", inputs, "]", more, "}")));
    return r.status == 200
               ? "200"
               : concat(r.status, " ", Json::parse(r.body)["error"]["code"].get<std::string>());
  };
  EXPECT_EQ(code(40, ""), "200");
  EXPECT_EQ(code(60, ""), "503 server_overloaded");
  EXPECT_EQ(code(60, R"(,"dimensions":1)"), "200");
  EXPECT_EQ(code(60, R"(,"encoding_format":"base64")"), "200");
  EXPECT_EQ(code(80, ""), "400 answer_too_large");
  EXPECT_EQ(code(40, ""), "200");  // its memory is free again
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, ReportsEmbeddingsThatAreNoNumbers) {
  RecordedServer server;
  const Response r = server.ask(post("/v1/embeddings", R"({"model":"m","input":[255,1]})"));
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(Json::parse(r.body)["error"]["code"], "engine_failure");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

}  // namespace
}  // namespace trireme::test_embedding_task
