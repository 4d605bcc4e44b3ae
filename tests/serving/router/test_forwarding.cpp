// Rewritten request heads, and keys taken from prompts.
#include <gtest/gtest.h>

#include "serving/router/forwarding.h"

namespace trireme::test_forwarding {
namespace {

HttpRequest request_of(const std::string& method, Headers headers, std::string body = "") {
  HttpRequest out;
  out.head.method = method;
  out.head.target = "/v1/completions?a=b";
  out.head.headers = std::move(headers);
  out.body = std::move(body);
  out.id = "id-1";
  return out;
}

TEST(ForwardedRequest, HasItsOwnFraming) {
  const HttpRequest request = request_of("POST",
                                         {{"host", "outside"},
                                          {"authorization", "Bearer k"},
                                          {"content-type", "application/json"},
                                          {"transfer-encoding", "chunked"},
                                          {"content-length", "999"},
                                          {"connection", "close, X-Private"},
                                          {"x-private", "1"},
                                          {"keep-alive", "5"},
                                          {"te", "trailers"},
                                          {"trailer", "x"},
                                          {"upgrade", "h2c"},
                                          {"proxy-authorization", "p"},
                                          {"expect", "100-continue"},
                                          {"accept-encoding", "gzip"},
                                          {"x-request-id", "theirs"},
                                          {"origin", "https://page"},
                                          {"x-mine", "kept"}},
                                         "{}");
  EXPECT_EQ(forwarded_body(request), "{}");
  EXPECT_EQ(
      forwarded_head(request, "inside:80", "/base"),
      "POST /base/v1/completions?a=b HTTP/1.1\r\nHost: inside:80\r\nauthorization: Bearer k\r\n"
      "content-type: application/json\r\nx-mine: kept\r\nx-request-id: id-1\r\ncontent-length: "
      "2\r\n\r\n");
}

TEST(ForwardedRequest, ABodyOfAGetDoesNotGoOn) {
  for (const char* method : {"GET", "HEAD"}) {
    const HttpRequest request = request_of(method, {}, "GET /admin HTTP/1.1\r\n\r\n");
    EXPECT_EQ(forwarded_body(request), "");
    EXPECT_EQ(forwarded_head(request, "a:1", ""),
              "GET /v1/completions?a=b HTTP/1.1\r\nHost: a:1\r\nx-request-id: id-1\r\n\r\n");
  }
}

TEST(ForwardedHeaders, LeaveOutWhatIsOfTheConnection) {
  const Headers want = {
      {"retry-after", "1"}, {"www-authenticate", "Bearer"}, {"content-encoding", "gzip"}};
  EXPECT_EQ(forwarded_headers({{"content-type", "x"},
                               {"content-length", "3"},
                               {"transfer-encoding", "chunked"},
                               {"connection", "x-a"},
                               {"x-a", "1"},
                               {"date", "d"},
                               {"server", "s"},
                               {"x-request-id", "i"},
                               {"access-control-allow-origin", "*"},
                               {"access-control-expose-headers", "x"},
                               {"retry-after", "1"},
                               {"www-authenticate", "Bearer"},
                               {"content-encoding", "gzip"}}),
            want);
}

TEST(WholeEvents, EndWithABlankLine) {
  std::string pending = "data: a\n\ndata: b\r\n\r\ndata: c\n";
  EXPECT_EQ(take_whole_events(pending, 0), "data: a\n\ndata: b\r\n\r\n");
  EXPECT_EQ(pending, "data: c\n");
  EXPECT_EQ(take_whole_events(pending, 0), "");
  pending += "\n";
  EXPECT_EQ(take_whole_events(pending, 8), "data: c\n\n");
  EXPECT_EQ(pending, "");
  pending = "data: a\r\rdata: b\r";
  EXPECT_EQ(take_whole_events(pending, 0), "data: a\r\r");
  pending += "\r";
  EXPECT_EQ(take_whole_events(pending, 8), "data: b\r\r");
  EXPECT_EQ(pending, "");
}

TEST(WholeEvents, AreFoundWhereverTheyAreCut) {
  for (const std::string text :
       {"data: a\n\ndata: b\r\n\r\n: ping\n\n", "data: a\r\rdata: b\r\r: ping\r\r"})
    for (size_t step = 1; step < text.size(); ++step) {
      std::string pending, taken;
      for (size_t at = 0, seen = 0; at < text.size(); at += step, seen = pending.size()) {
        pending += text.substr(at, step);
        taken += take_whole_events(pending, seen);
        for (const char* end : {"\n\n", "\n\r\n", "\r\r"})
          EXPECT_EQ(pending.find(end), std::string::npos);
      }
      EXPECT_EQ(taken, text) << step;
    }
}

TEST(Climbs, WhateverTheSpelling) {
  for (const char* path : {"/v1/../metrics", "/v1/..", "/v1/./models", "/v1/.", "/v1/%2e%2E/admin",
                           "/v1/.%2e/a", "/v1%2f..%2Fadmin", "/v1/..\\admin", "/v1/x%5C..%5cy"})
    EXPECT_TRUE(has_dot_segments(path)) << path;
  for (const char* path : {"/v1/models", "/v1/models/a.b", "/v1/models/..b", "/v1/models/a..",
                           "/v1/models/.hidden", "/v1/models/org%2fname", "/v1/models/%252e%252e"})
    EXPECT_FALSE(has_dot_segments(path)) << path;
}

TEST(PromptText, IsWhatAServersCacheSees) {
  const auto of = [](const std::string& body, Headers headers = {}) {
    return prompt_text(request_of("POST", std::move(headers), body));
  };
  EXPECT_EQ(of(R"({"prompt":"abc","model":"m"})").text, "abc");
  EXPECT_EQ(of(R"({"prompt":[1,2]})").text, "[1,2]");
  EXPECT_EQ(of(R"({"messages":[{"role":"user"}],"tools":[3]})").text, R"([3][{"role":"user"}])");
  const uint64_t plain = of(R"({"model":"m"})").scope;
  EXPECT_EQ(of(R"({"temperature":1,"model":"m","prompt":"x"})").scope, plain);
  EXPECT_NE(of(R"({"model":"other"})").scope, plain);
  EXPECT_NE(of(R"({"model":"m","cache_salt":"s"})").scope, plain);
  EXPECT_NE(of(R"({"model":"m"})", {{"authorization", "Bearer k"}}).scope, plain);
  const std::string deep = std::string(100'000, '[');
  for (const std::string& wrong : {std::string("no JSON"), std::string("[]"), std::string("3"),
                                   deep, std::string(R"({"prompt":null})")})
    EXPECT_EQ(of(wrong).text, "") << wrong.substr(0, 20);
}

}  // namespace
}  // namespace trireme::test_forwarding
