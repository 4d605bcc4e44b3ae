#include "serving/http/server/response_text.h"

#include <array>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <ctime>

#include "engine/core/error.h"

namespace trireme {
namespace {

std::string reason_of(int status) {
  const auto text = boost::beast::http::obsolete_reason(
      boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  return {text.data(), text.size()};
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

std::string head_text(const ServerResponseHead& head) {
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
