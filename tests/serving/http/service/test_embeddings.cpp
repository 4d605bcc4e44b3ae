// /v1/embeddings, from outside.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_embeddings {
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
  // Fewer numbers are of length one again; tokens are a text too.
  r = ask(R"("input":[104,105],"dimensions":2)");
  const std::vector<double> two = Json::parse(r.body)["data"][0]["embedding"];
  ASSERT_EQ(two.size(), 2u);
  EXPECT_NEAR(two[0], x / std::sqrt(x * x + 9), 1e-7);
  // More texts than are computed at a time, in their order; the longest that may be.
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
  options.answers = {.whole = 10'000, .always = 2'000, .all = 6'000};
  RecordedServer server(options);
  const auto code = [&](int texts, const char* more) {
    std::string inputs;
    for (int i = 0; i < texts; ++i) inputs += concat(i == 0 ? "" : ",", "[1,", 1 + i % 250, "]");
    // What the answer before held is given back a moment after its last byte.
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
  EXPECT_EQ(code(40, ""), "200");  // what was held is free again
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(Service, TellsOfEmbeddingsThatAreNoNumbers) {
  RecordedServer server;
  const Response r = server.ask(post("/v1/embeddings", R"({"model":"m","input":[255,1]})"));
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(Json::parse(r.body)["error"]["code"], "engine_failure");
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

}  // namespace
}  // namespace trireme::test_embeddings
