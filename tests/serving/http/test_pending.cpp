// Answers that come by and by, whatever part their end comes with.
#include "serving/http/exchange.h"
#include "serving/http/server.h"
#include "tests/serving/http/raw_client.h"

namespace trireme {
namespace {

// Gives one part after the other.
class Parts final : public PendingReply {
 public:
  explicit Parts(std::vector<Part> parts) : parts_(std::move(parts)) {}
  void start(std::function<void()> wake) override {
    if (parts_.empty()) throw std::runtime_error("a secret");
    wake_ = std::move(wake);
  }
  Part take() override {
    if (next_ == parts_.size()) throw std::runtime_error("a secret");
    Part part = parts_.at(next_++);
    if (!part.done) wake_();
    return part;
  }
  std::string error_event(const ApiError& error) const override {
    return concat("data: ", error.error_code(), "\n\n");
  }

 private:
  std::vector<Part> parts_;
  size_t next_ = 0;
  std::function<void()> wake_;
};

std::string answer(const std::vector<PendingReply::Part>& parts) {
  Routes routes;
  routes.add({.method = "GET", .path = "/", .handle = [&](HttpRequest&) {
                return HttpAnswer{{}, std::make_unique<Parts>(parts)};
              }});
  HttpServer server({.port = 0}, std::move(routes));
  const test::Response response =
      test::ask(server.port(), "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  return response.complete ? response.body : "incomplete: " + response.body;
}

TEST(PendingReply, AStreamEndsWithItsLastEventOrAfterIt) {
  EXPECT_EQ(answer({{.events = "data: a\n\n"}, {.events = "data: b\n\n", .done = true}}),
            "data: a\n\ndata: b\n\n");
  EXPECT_EQ(answer({{.events = "data: a\n\n"}, {.events = "data: b\n\n"}, {.done = true}}),
            "data: a\n\ndata: b\n\n");
  EXPECT_EQ(answer({{.whole = HttpReply{.body = "whole"}, .done = true}}), "whole");
}

// Who waits is told, and not what it was.
TEST(PendingReply, WhatItThrowsIsAnError) {
  EXPECT_EQ(answer({{.events = "data: a\n\n"}}), "data: a\n\ndata: internal_error\n\n");
  for (const std::vector<PendingReply::Part>& parts :
       {std::vector<PendingReply::Part>{}, std::vector<PendingReply::Part>{{}}}) {
    const std::string body = answer(parts);
    EXPECT_NE(body.find(R"("code":"internal_error")"), std::string::npos) << body;
    EXPECT_EQ(body.find("secret"), std::string::npos) << body;
  }
}

}  // namespace
}  // namespace trireme
