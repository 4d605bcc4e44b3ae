// Heads that are written anew, and what is taken from prompts.
#include <gtest/gtest.h>

#include "serving/router/forwarding.h"

namespace trireme {
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
                                          {"x-mine", "kept"}},
                                         "{}");
  EXPECT_EQ(
      forwarded_request(request, "inside:80", "/base"),
      "POST /base/v1/completions?a=b HTTP/1.1\r\nHost: inside:80\r\nauthorization: Bearer k\r\n"
      "content-type: application/json\r\nx-mine: kept\r\nx-request-id: id-1\r\ncontent-length: "
      "2\r\n\r\n{}");
}

TEST(ForwardedRequest, ABodyOfAGetDoesNotGoOn) {
  for (const char* method : {"GET", "HEAD"})
    EXPECT_EQ(forwarded_request(request_of(method, {}, "GET /admin HTTP/1.1\r\n\r\n"), "a:1", ""),
              "GET /v1/completions?a=b HTTP/1.1\r\nHost: a:1\r\nx-request-id: id-1\r\n\r\n");
}

TEST(ForwardedHeaders, LeaveOutWhatIsOfTheConnection) {
  const Headers want = {{"retry-after", "1"}, {"www-authenticate", "Bearer"}};
  EXPECT_EQ(forwarded_headers({{"content-type", "x"},
                               {"content-length", "3"},
                               {"transfer-encoding", "chunked"},
                               {"connection", "x-a"},
                               {"x-a", "1"},
                               {"date", "d"},
                               {"server", "s"},
                               {"x-request-id", "i"},
                               {"retry-after", "1"},
                               {"www-authenticate", "Bearer"}}),
            want);
}

TEST(WholeEvents, EndWithABlankLine) {
  std::string pending = "data: a\n\ndata: b\r\n\r\ndata: c\n";
  EXPECT_EQ(take_whole_events(pending), "data: a\n\ndata: b\r\n\r\n");
  EXPECT_EQ(pending, "data: c\n");
  EXPECT_EQ(take_whole_events(pending), "");
  pending += "\n";
  EXPECT_EQ(take_whole_events(pending), "data: c\n\n");
  EXPECT_EQ(pending, "");
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
}  // namespace trireme
