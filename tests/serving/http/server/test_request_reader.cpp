#include <gtest/gtest.h>

#include "serving/http/server/request_reader.h"

namespace trireme::test_request_reader {
namespace {

using State = RequestReader::State;

struct Read {
  State state = State::kHead;
  int status = 0;
  std::string body, rest, message;
  RequestHead head;
};

// Reads in pieces of `piece` bytes, until the request is complete or refused.
Read read(const std::string& bytes, size_t piece = std::string::npos,
          const HttpLimits& limits = {}) {
  const auto budget = std::make_shared<ByteBudget>(limits.all_bodies);
  Read out;
  {
    RequestReader reader(limits, budget);
    std::string buffer;
    size_t at = 0;
    const auto open = [&] {
      return reader.state() == State::kHead || reader.state() == State::kBody;
    };
    while (open()) {
      const size_t taken = reader.feed(buffer);
      buffer.erase(0, taken);
      if (taken > 0 || !open()) continue;
      if (at == bytes.size()) break;
      const size_t more = std::min(piece, bytes.size() - at);
      buffer.append(bytes, at, more);
      at += more;
    }
    out.state = reader.state();
    if (out.state == State::kRefused) {
      out.status = reader.refusal().status();
      out.message = reader.refusal().what();
    }
    if (out.state != State::kHead) out.head = reader.head();
    if (out.state == State::kDone) out.body = reader.take_body();
    out.rest = buffer + bytes.substr(at);
  }
  EXPECT_EQ(budget->left(), limits.all_bodies);
  return out;
}

std::string request(const std::string& headers, const std::string& body = "") {
  return "POST /x HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

TEST(RequestReader, ReadsARequestWhereverItIsCut) {
  const std::string bytes =
      "\r\nPOST /a/b?c=d HTTP/1.1\r\nHost: h\r\nX-Y:  z \r\nContent-Length: 5\r\n\r\nhelloGET";
  for (size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{1000}}) {
    const Read r = read(bytes, piece);
    ASSERT_EQ(r.state, State::kDone) << piece << r.message;
    EXPECT_EQ(r.head.method, "POST");
    EXPECT_EQ(r.head.path, "/a/b");
    EXPECT_EQ(r.head.query, "c=d");
    EXPECT_EQ(*r.head.find("x-y"), "z");
    EXPECT_EQ(r.head.content_length, 5u);
    EXPECT_TRUE(r.head.keep_alive);
    EXPECT_EQ(r.body, "hello");
    EXPECT_EQ(r.rest, "GET");
  }
}

TEST(RequestReader, ReadsChunks) {
  const std::string bytes =
      request("Transfer-Encoding: chunked\r\n",
              "3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nTrailer: t\r\nHost: other\r\n\r\nrest");
  for (size_t piece : {size_t{1}, size_t{5}, size_t{1000}}) {
    const Read r = read(bytes, piece);
    ASSERT_EQ(r.state, State::kDone) << piece << r.message;
    EXPECT_EQ(r.body, "abcd");
    EXPECT_EQ(r.rest, "rest");
    EXPECT_EQ(r.head.count("host"), 1u);  // trailers add nothing
    EXPECT_EQ(r.head.find("trailer"), nullptr);
  }
}

TEST(RequestReader, ReadsTargetsInAbsoluteForm) {
  const auto target = [](const std::string& text, const std::string& host = "Host: other\r\n") {
    return read("GET " + text + " HTTP/1.1\r\n" + host + "\r\n");
  };
  for (const auto& [text, host, path, query] :
       {std::tuple("http://localhost/v1/models", "localhost", "/v1/models", ""),
        std::tuple("HTTP://LOCALHOST:80/v1?a=1", "LOCALHOST:80", "/v1", "a=1"),
        std::tuple("https://[::1]:8/", "[::1]:8", "/", ""), std::tuple("http://h", "h", "/", ""),
        std::tuple("http://h?q", "h", "/", "q"),
        std::tuple("http://h/http://g/", "h", "/http://g/", "")}) {
    const Read r = target(text);
    ASSERT_EQ(r.state, State::kDone) << text << r.message;
    EXPECT_EQ(*r.head.find("host"), host) << text;  // not the one in the header
    EXPECT_EQ(r.head.count("host"), 1u) << text;
    EXPECT_EQ(r.head.path, path) << text;
    EXPECT_EQ(r.head.query, query) << text;
    EXPECT_EQ(r.head.target[0], '/') << text;
  }
  for (const char* text : {"http:///a", "http://", "http://user@h/a", "http://user:word@h/",
                           "ftp://h/a", "h:80", "*", "http:/h/a", "://h/", "http", "HTTPS"})
    EXPECT_EQ(target(text).status, 400) << text;
  EXPECT_EQ(target("http://h/a", "").status, 400);
  EXPECT_EQ(target("http://h/a", "Host: a\r\nHost: b\r\n").status, 400);
}

TEST(RequestReader, RefusesAChunkLineWithoutCRAtOnce) {
  for (const char* body : {"3\n", "\n", "3;x=y\n", "3\r\nabc\r\n3\n", "3\r\nabc\n",
                           "3\r\nabc\r\n0\n", "0\r\nTrailer: t\n\n"}) {
    const std::string bytes = request("Transfer-Encoding: chunked\r\n", body);
    for (const size_t piece : {size_t{1}, size_t{1000}}) {
      // The parser needs at least five bytes of a body: the next bytes are not a chunk either.
      EXPECT_EQ(read(bytes + "....", piece).status, 400) << body << piece;
    }
  }
}

TEST(RequestReader, RefusesTwoOfWhatDecides) {
  for (const char* name :
       {"Content-Type", "content-length", "Authorization", "X-Request-Timeout-Ms"}) {
    const std::string header = std::string(name) + ": 0\r\n";
    EXPECT_EQ(read(request(header)).state, State::kDone) << name;
    EXPECT_EQ(read(request(header + header)).status, 400) << name;
  }
}

TEST(RequestReader, TakesLimitsAndNothingBeyond) {
  HttpLimits limits;
  limits.request_line = 100;
  limits.header = 50;
  limits.headers = 5;
  limits.headers_bytes = 200;
  limits.body = 10;
  const auto status = [&](const std::string& bytes) {
    const Read whole = read(bytes, std::string::npos, limits);
    EXPECT_EQ(read(bytes, 1, limits).status, whole.status);
    return whole.state == State::kDone ? 200 : whole.status;
  };
  const auto line = [](size_t bytes) {
    const std::string ends = "GET  HTTP/1.1";
    return "GET /" + std::string(bytes - ends.size() - 1, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n";
  };
  EXPECT_EQ(status(line(100)), 200);
  EXPECT_EQ(status(line(101)), 414);
  EXPECT_EQ(status("GET /" + std::string(200, 'a')), 414);  // unterminated
  const auto header = [](size_t bytes) { return "X: " + std::string(bytes - 3, 'v') + "\r\n"; };
  const auto get = [](const std::string& headers) {
    return "GET / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n";
  };
  EXPECT_EQ(status(get(header(50))), 200);
  EXPECT_EQ(status(get(header(51))), 431);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nX: " + std::string(100, 'v')), 431);
  EXPECT_EQ(status(get("A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n")), 200);  // five with Host
  EXPECT_EQ(status(get("A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n")), 431);
  limits.headers = 100;
  EXPECT_EQ(status(get(header(50) + header(50) + header(50) + header(43))), 200);  // and Host: 7
  EXPECT_EQ(status(get(header(50) + header(50) + header(50) + header(44))), 431);
  const auto body = [](size_t bytes) {
    return request("Content-Length: " + std::to_string(bytes) + "\r\n", std::string(bytes, 'b'));
  };
  EXPECT_EQ(status(body(10)), 200);
  EXPECT_EQ(status(body(11)), 413);
  EXPECT_EQ(
      status(request("Transfer-Encoding: chunked\r\n", "5\r\nbbbbb\r\n5\r\nbbbbb\r\n0\r\n\r\n")),
      200);
  EXPECT_EQ(
      status(request("Transfer-Encoding: chunked\r\n", "5\r\nbbbbb\r\n6\r\nbbbbbb\r\n0\r\n\r\n")),
      413);
}

TEST(RequestReader, RefusesHeadsOfAMegabyte) {
  EXPECT_EQ(read("GET / HTTP/1.1\r\nX: " + std::string(1 << 20, 'v') + "\r\n\r\n", 4096).status,
            431);
  std::string many = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 10000; ++i) many += "X: y\r\n";
  EXPECT_EQ(read(many + "\r\n", 4096).status, 431);
}

TEST(RequestReader, RefusesChunksThatLie) {
  const auto chunked = [](const std::string& body) {
    return read(request("Transfer-Encoding: chunked\r\n", body));
  };
  for (const char* size :
       {"-2", "FFFFFFFFFFFFFFFF", "10000000000000000", "0x5", "g", "", " 5", "5 "})
    EXPECT_GE(chunked(std::string(size) + "\r\nhello\r\n0\r\n\r\n").status, 400) << size;
  EXPECT_EQ(chunked("5\r\nhelloworld\r\n0\r\n\r\n").status, 400);  // longer than its declared size
  EXPECT_EQ(chunked("5;" + std::string(20000, 'e')).status, 400);
  EXPECT_EQ(chunked("0\r\nX: " + std::string(20000, 'e')).status, 400);  // an unterminated trailer
  EXPECT_EQ(chunked("5\r\nhello\r\n").state, State::kBody);              // waits for the last chunk
}

TEST(RequestReader, ReadsManySmallChunks) {
  std::string bytes = request("Transfer-Encoding: chunked\r\n");
  for (int i = 0; i < 500'000; ++i) bytes += "1\r\nx\r\n";  // three megabytes
  const Read r = read(bytes + "0\r\n\r\n", 16 << 10);
  EXPECT_EQ(r.state, State::kDone);
  EXPECT_EQ(r.body.size(), 500'000u);
}

TEST(RequestReader, RefusesWhatTwoServersWouldReadDifferently) {
  for (const char* headers :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n", "Content-Length: +5\r\n", "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n", "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Host: h\r\n", "X : y\r\n",
        "X: a\r\n b\r\n", " X: y\r\n", "X: a\nY: b\r\n", "X: a\rb\r\n", "no colon\r\n",
        "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"})
    EXPECT_EQ(read(request(headers, "hello")).status, 400) << headers;
  EXPECT_EQ(read(request(std::string("X: a\0b\r\n", 8))).status, 400);
  for (const char* coding : {"gzip", "gzip, chunked", "identity", "chunked, chunked", "xchunked"})
    EXPECT_GE(read(request(std::string("Transfer-Encoding: ") + coding + "\r\n", "hello")).status,
              400)
        << coding;
  EXPECT_EQ(read("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").status, 400);
  for (const char* line :
       {"GET / HTTP/2.0", "GET / HTTP/1.2", "GET  / HTTP/1.1", "GET /", "G\x01T / HTTP/1.1",
        "GET /\x01 HTTP/1.1", " GET / HTTP/1.1", "PRI * HTTP/2.0"})
    EXPECT_EQ(read(std::string(line) + "\r\nHost: h\r\n\r\n").status, 400) << line;
  EXPECT_EQ(read("GET / HTTP/1.1\nHost: h\n\n").status, 400);
  EXPECT_EQ(read("GET / HTTP/1.1\r\n\r\n").status, 400);  // no Host
  EXPECT_EQ(read("GET / HTTP/1.0\r\n\r\n").state, State::kDone);
}

TEST(RequestReader, CountsTheBytesOfAllBodies) {
  HttpLimits limits;
  const auto budget = std::make_shared<ByteBudget>(8);
  {
    RequestReader reader(limits, budget);
    std::string bytes = request("Content-Length: 6\r\n", "abcdef");
    while (reader.state() != State::kDone) bytes.erase(0, reader.feed(bytes));
    EXPECT_EQ(budget->left(), 2);
    RequestReader other(limits, budget);
    bytes = request("Content-Length: 6\r\n", "abcdef");
    while (other.state() == State::kHead || other.state() == State::kBody)
      bytes.erase(0, other.feed(bytes));
    EXPECT_EQ(other.state(), State::kRefused);
    EXPECT_EQ(other.refusal().status(), 503);
    EXPECT_EQ(budget->left(), 2);
  }
  EXPECT_EQ(budget->left(), 8);
}

TEST(RequestReader, HandsTheShareOverWithTheBody) {
  const HttpLimits limits;
  const auto budget = std::make_shared<ByteBudget>(8);
  ByteShare share;
  {
    RequestReader reader(limits, budget);
    std::string bytes = request("Content-Length: 6\r\n", "abcdef");
    while (reader.state() != State::kDone) bytes.erase(0, reader.feed(bytes));
    share = reader.take_share();
  }
  EXPECT_EQ(share.bytes(), 6);
  EXPECT_EQ(budget->left(), 2);
  EXPECT_FALSE(share.grow(3));
  ByteShare moved = std::move(share);
  EXPECT_TRUE(moved.grow(2));
  EXPECT_EQ(budget->left(), 0);
  moved = {};
  EXPECT_EQ(budget->left(), 8);
}

TEST(RequestReader, ForgetsABodyThatNobodyWants) {
  HttpLimits limits;
  const auto budget = std::make_shared<ByteBudget>(8);
  RequestReader reader(limits, budget);
  std::string bytes = request("Content-Length: 600\r\n", std::string(600, 'x'));
  bytes.erase(0, reader.feed(bytes));
  reader.discard_body();
  while (reader.state() == State::kBody) bytes.erase(0, reader.feed(bytes));
  EXPECT_EQ(reader.state(), State::kDone);
  EXPECT_EQ(reader.take_body(), "");
  EXPECT_EQ(budget->left(), 8);
}

}  // namespace
}  // namespace trireme::test_request_reader
