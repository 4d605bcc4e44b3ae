#include "serving/router/forwarding.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/io/strict_json.h"
#include "serving/load_balancer/prefix_table.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kOfConnection = {"connection",
                                      "keep-alive",
                                      "proxy-authenticate",
                                      "proxy-authorization",
                                      "proxy-connection",
                                      "te",
                                      "trailer",
                                      "transfer-encoding",
                                      "upgrade",
                                      "content-length"};
// Includes Origin: the router itself decides about other origins (CORS).
constexpr std::array kWrittenAnew = {"host", "expect", "accept-encoding", "x-request-id", "origin"};
constexpr std::array kResponseHeaders = {"content-type", "date", "server", "x-request-id"};

template <size_t N>
bool is_one_of(const std::array<const char*, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return text;
}

// The header Connection lists further hop-by-hop headers.
bool is_of_connection(const Headers& headers, const std::string& name) {
  if (is_one_of(kOfConnection, name)) return true;
  for (const auto& [key, value] : headers) {
    if (key != "connection") continue;
    std::string list = lower(value);
    std::erase_if(list, [](char c) { return c == ' ' || c == '\t'; });
    if (concat(",", list, ",").find(concat(",", name, ",")) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string_view forwarded_body(const HttpRequest& request) {
  return request.head.method == "POST" ? std::string_view(request.body) : std::string_view();
}

std::string forwarded_head(const HttpRequest& request, const std::string& authority,
                           const std::string& base) {
  const RequestHead& head = request.head;
  std::string out = concat(head.method == "HEAD" ? "GET" : head.method, " ", base, head.target,
                           " HTTP/1.1\r\nHost: ", authority, "\r\n");
  for (const auto& [name, value] : head.headers)
    if (!is_of_connection(head.headers, name) && !is_one_of(kWrittenAnew, name))
      out += concat(name, ": ", value, "\r\n");
  out += concat("x-request-id: ", request.id, "\r\n");
  if (head.method == "POST")
    out += concat("content-length: ", forwarded_body(request).size(), "\r\n");
  return out += "\r\n";
}

Headers forwarded_headers(const Headers& headers) {
  Headers out;
  for (const auto& header : headers)
    if (!is_of_connection(headers, header.first) && !is_one_of(kResponseHeaders, header.first) &&
        !header.first.starts_with("access-control-"))
      out.push_back(header);
  return out;
}

bool has_dot_segments(std::string_view path) {
  std::string plain = lower(std::string(path));
  for (const auto& [spelled, meant] :
       {std::pair{"%2e", "."}, {"%2f", "/"}, {"%5c", "/"}, {"\\", "/"}})
    for (size_t at = 0; (at = plain.find(spelled, at)) != std::string::npos; ++at)
      plain.replace(at, std::string_view(spelled).size(), meant);
  plain += '/';
  return plain.find("/./") != std::string::npos || plain.find("/../") != std::string::npos;
}

std::string take_whole_events(std::string& pending, size_t seen) {
  size_t end = 0;
  const size_t from = seen - std::min<size_t>(seen, 2);  // the end of an event may have begun there
  const std::string_view rest = std::string_view(pending).substr(from);
  for (const std::string_view blank : {"\n\n", "\n\r\n", "\r\r"})
    if (const size_t at = rest.rfind(blank); at != std::string::npos)
      end = std::max(end, from + at + blank.size());
  std::string out = pending.substr(0, end);
  pending.erase(0, end);
  return out;
}

PromptText prompt_text(const HttpRequest& request) {
  PromptText out;
  Json body;
  try {
    body = parse_strict_json<Json>(request.body, "body", {.depth = 64});
  } catch (const InputError&) {
    return out;  // the server reports what is wrong with it
  }
  if (!body.is_object()) return out;
  const auto text_of = [&](const char* name) {
    const auto at = body.find(name);
    if (at == body.end() || at->is_null()) return std::string();
    return at->is_string() ? at->get<std::string>()
                           : at->dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  // A server shares its prefix cache among requests with the same key and salt.
  const std::string* key = request.head.find("authorization");
  const std::string scope =
      concat(text_of("model"), "\n", text_of("cache_salt"), "\n", key == nullptr ? "" : *key);
  out.scope = prefix_scope(scope);
  out.text = text_of("prompt");
  if (out.text.empty()) out.text = text_of("tools") + text_of("messages");
  return out;
}

}  // namespace trireme
