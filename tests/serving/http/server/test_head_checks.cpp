// Requests refused by their head alone, and their log lines.
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "serving/http/server/head_checks.h"
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_head_checks {
namespace {

using namespace test;

std::string tokenize_as(const std::string& type, const std::string& more = "") {
  const std::string body = R"({"prompt":"x"})";
  return concat("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: ", type,
                "\r\nContent-Length: ", body.size(), "\r\n", more, "\r\n", body);
}

TEST(HeadChecks, ReadOnlyPlainJson) {
  RecordedServer server;
  for (const char* type :
       {"application/json", "application/json; charset=utf-8", "application/json;charset=\"UTF-8\"",
        "Application/JSON ; x=y; charset=US-ASCII", "application/json; charset="})
    EXPECT_EQ(server.ask(tokenize_as(type)).status, 200) << type;
  for (const char* type :
       {"text/plain", "application/json; charset=utf-16", "application/json;x=y;Charset = latin1"})
    EXPECT_EQ(server.ask(tokenize_as(type)).status, 415) << type;
  const auto encoded = [&](const std::string& more) {
    return server.ask(tokenize_as("application/json", more)).status;
  };
  EXPECT_EQ(encoded("Content-Encoding: identity\r\n"), 200);
  EXPECT_EQ(encoded("Content-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(encoded("Content-Encoding: identity\r\nContent-Encoding: br\r\n"), 415);
}

TEST(HeadChecks, LocalNamesInAnySpelling) {
  RecordedServer server;
  const auto status = [&](const std::string& host, const std::string& target = "/v1/models") {
    return server.ask(concat("GET ", target, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n")).status;
  };
  for (const char* host : {"localhost", "LOCALHOST", "LocalHost:80", "localhost.", "localhost.:80",
                           "127.0.0.1", "127.1.2.3:9", "[::1]", "[::1]:80"})
    EXPECT_EQ(status(host), 200) << host;
  for (const char* host : {"localhost..", "localhost.example", "127.example", "example", ".", "",
                           "[::1", "localhost:80:80", "localhost:x"})
    EXPECT_EQ(status(host), 403) << host;
  EXPECT_EQ(status("example", "http://LOCALHOST./v1/models"), 200);
  EXPECT_EQ(status("localhost", "http://example/v1/models"), 403);
}

TEST(HeadChecks, MeetNoOtherExpectation) {
  RecordedServer server;
  const Response r = server.ask(tokenize_as("application/json", "Expect: a-unicorn\r\n"));
  EXPECT_EQ(r.status, 417);
  EXPECT_TRUE(r.head.starts_with("HTTP/1.1 417 Expectation Failed\r\n")) << r.head;
  EXPECT_EQ(error_code_of(r), "expectation_failed");
  RawClient client(server.port());
  client.send(tokenize_as("application/json", "Expect: 100-Continue\r\n"));
  Response good = client.response();
  if (good.status == 100) good = client.response();
  EXPECT_EQ(good.status, 200);
}

TEST(HeadChecks, MetricsAreForAdminsOrForAll) {
  const auto status = [](bool has_keys, bool is_open, const std::string& key) {
    RecordedServerOptions options;
    if (has_keys) options.http.keys = ApiKeys({"user"}, {"admin"}, is_open);
    RecordedServer server(options);
    return server.ask(get("/metrics", key.empty() ? "" : "Authorization: Bearer " + key + "\r\n"))
        .status;
  };
  EXPECT_EQ(status(false, false, ""), 200);
  EXPECT_EQ(status(true, false, ""), 401);
  EXPECT_EQ(status(true, false, "user"), 403);
  EXPECT_EQ(status(true, false, "admin"), 200);
  EXPECT_EQ(status(true, true, ""), 200);
}

}  // namespace
}  // namespace trireme::test_head_checks
