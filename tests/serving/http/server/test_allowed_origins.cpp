// Web pages of other origins: preflights, and the headers of all other responses.
#include "serving/http/server/allowed_origins.h"
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_allowed_origins {
namespace {

using namespace test;

constexpr char kPage[] = "https://page.example:8443";

RecordedServerOptions options_for(std::vector<std::string> origins) {
  RecordedServerOptions options;
  options.http.origins = AllowedOrigins(std::move(origins));
  options.http.keys = ApiKeys({"key"}, {});
  return options;
}

std::string preflight(const std::string& path, const std::string& origin,
                      const std::string& more = "") {
  return concat("OPTIONS ", path, " HTTP/1.1\r\nHost: localhost\r\nOrigin: ", origin,
                "\r\nAccess-Control-Request-Method: POST\r\n", more, "\r\n");
}
std::string from(const std::string& origin, const std::string& key = "") {
  return concat("Origin: ", origin, "\r\n",
                key.empty() ? "" : concat("Authorization: Bearer ", key, "\r\n"));
}
// Value of Access-Control-Allow-Origin; "none": no such header.
std::string allowed(const Response& response) {
  const auto at = response.headers.find("Access-Control-Allow-Origin");
  return at == response.headers.end() ? "none" : at->second;
}

TEST(AllowedOrigins, AreNoneByDefault) {
  RecordedServer server;
  for (const std::string& request :
       {get("/health", from(kPage)), get("/v1/models", from(kPage)), get("/nothing", from(kPage)),
        preflight("/v1/models", kPage)}) {
    const Response r = server.ask(request);
    EXPECT_EQ(r.head.find("Access-Control"), std::string::npos) << r.head;
    EXPECT_EQ(r.head.find("Vary"), std::string::npos) << r.head;
  }
  EXPECT_EQ(server.ask(preflight("/v1/models", kPage)).status, 405);
}

TEST(AllowedOrigins, PreflightsNeedNoKey) {
  RecordedServer server(options_for({"http://other", kPage}));
  RawClient client(server.port());
  for (int i = 0; i < 2; ++i) {  // the connection stays open
    client.send(preflight("/v1/chat/completions", kPage,
                          "Access-Control-Request-Headers: authorization,x-stainless-os\r\n"));
    const Response r = client.response();
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.body, "");
    EXPECT_EQ(allowed(r), kPage);
    EXPECT_EQ(r.headers.at("Access-Control-Allow-Methods"), "GET, HEAD, POST");
    EXPECT_EQ(r.headers.at("Access-Control-Allow-Headers"), "authorization,x-stainless-os");
    EXPECT_NE(r.head.find("Vary: Origin\r\n"), std::string::npos);
    EXPECT_FALSE(r.headers.contains("Access-Control-Allow-Credentials"));
  }
  // Without the header of a preflight it is an ordinary request.
  EXPECT_EQ(server.ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n" + from(kPage) + "\r\n")
                .status,
            401);
}

TEST(AllowedOrigins, OthersGetNoHeader) {
  RecordedServer server(options_for({kPage}));
  for (const char* other : {"https://page.example", "http://page.example:8443", "null",
                            "https://page.example:84430", "HTTPS://page.example:8443", ""}) {
    const Response asked = server.ask(preflight("/v1/models", other));
    EXPECT_EQ(asked.status, 403) << other;
    EXPECT_EQ(error_code_of(asked), "origin_not_allowed");
    EXPECT_EQ(asked.head.find("Access-Control"), std::string::npos) << asked.head;
    const Response r = server.ask(get("/v1/models", from(other, "key")));
    EXPECT_EQ(r.status, 200) << other;
    EXPECT_EQ(r.head.find("Access-Control"), std::string::npos) << r.head;
    EXPECT_EQ(r.headers.at("Vary"), "Origin");
  }
  const Response twice = server.ask(preflight("/v1/models", kPage, from(kPage)));
  EXPECT_EQ(allowed(twice), "none");
}

TEST(AllowedOrigins, AreNamedInErrorsAndStreams) {
  RecordedServer server(options_for({kPage}));
  const std::string good = R"({"model":"m","prompt":"hi","max_tokens":3,"stream":true})";
  struct Case {
    std::string request;
    int status;
  };
  const std::vector<Case> cases = {
      {get("/v1/models", from(kPage, "key")), 200},
      {get("/v1/models", from(kPage)), 401},
      {get("/nothing", from(kPage, "key")), 404},
      {get("/v1/completions", from(kPage, "key")), 405},
      {post("/v1/completions", "{}", from(kPage, "key")), 400},
      {post("/v1/completions", good, from(kPage, "key")), 200},
      {concat("GET /health HTTP/1.1\r\nHost: a\r\n", from(kPage), "Content-Length: x\r\n\r\n"),
       400}};
  for (const auto& [request, status] : cases) {
    const Response r = server.ask(request);
    EXPECT_EQ(r.status, status) << request;
    EXPECT_EQ(allowed(r), kPage) << request;
    EXPECT_EQ(r.headers.at("Vary"), "Origin") << request;
    EXPECT_NE(r.headers.at("Access-Control-Expose-Headers").find("X-Request-Id"),
              std::string::npos);
  }
  const Response stream = server.ask(post("/v1/completions", good, from(kPage, "key")));
  EXPECT_TRUE(stream.headers.at("Content-Type").starts_with("text/event-stream"));
}

TEST(AllowedOrigins, MayBeAll) {
  RecordedServer server(options_for({"*"}));
  EXPECT_EQ(allowed(server.ask(preflight("/v1/models", "null"))), "*");
  const Response r = server.ask(get("/v1/models", from(kPage, "key")));
  EXPECT_EQ(allowed(r), "*");
  EXPECT_FALSE(r.headers.contains("Vary"));
}

// As in the error message: http(s)://HOST[:PORT], or "*".
TEST(AllowedOrigins, AreWrittenAsBrowsersSendThem) {
  for (const char* good : {"*", "http://localhost:5173", "https://page.example",
                           "http://[::1]:8080", "http://page.example:443"})
    EXPECT_NO_THROW(AllowedOrigins({good})) << good;
  for (const char* bad : {"", "page.example", "https://", "https://page.example/",
                          "https://Page.example", "null", "https://*.example", "ftp://page.example",
                          "https://a b", "http://page.example:80", "https://page.example:443"})
    EXPECT_THROW(AllowedOrigins({bad}), InputError) << bad;
}

}  // namespace
}  // namespace trireme::test_allowed_origins
