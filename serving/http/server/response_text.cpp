#include "serving/http/server/response_text.h"

#include <array>
#include <charconv>
#include <ctime>

#include "engine/core/error.h"

namespace trireme {
namespace {

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Status";
  }
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text.data();
}

}  // namespace

std::string head_text(const AnswerHead& head) {
  std::string out = concat("HTTP/1.1 ", head.status, " ", reason_of(head.status), "\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    out.append(name).append(": ").append(value).append("\r\n");
  };
  add("Content-Type", head.content_type);
  if (head.content_type.starts_with("text/event-stream")) add("Cache-Control", "no-cache");
  add("X-Request-Id", head.request_id);
  for (const auto& [name, value] : head.headers) add(name, value);
  out += head.framing;
  if (!head.keep)
    add("Connection", "close");
  else if (head.version < 11)
    add("Connection", "keep-alive");
  add("Date", date_now());
  return out += "\r\n";
}

std::string chunk_text(const std::string& bytes) {
  std::array<char, 20> size{};
  const auto end = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr;
  std::string out(size.data(), end);
  return out.append("\r\n").append(bytes).append("\r\n");
}

}  // namespace trireme
