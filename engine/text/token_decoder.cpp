#include "engine/text/token_decoder.h"

#include <cstdlib>

#include "engine/text/json_fields.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
         token.find_first_not_of("0123456789ABCDEFabcdef", 3) == 5;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out.append(text, at, found - at);
    if (found == std::string::npos) return out;
    out += to;
    at = found + from.size();
  }
}

}  // namespace

TokenDecoder::TokenDecoder(const nlohmann::json& json, const std::string& what) {
  if (!json.is_null()) add(json, what + ": decoder", 0);
}

void TokenDecoder::add(const nlohmann::json& json, const std::string& what, int depth) {
  const std::string type = type_of(json, what);
  const auto strip = [&](const std::string& content, size_t most) {
    if (most > 0 && most_stripped_ > 0) fail_input(what, ": two parts strip the beginning");
    stripped_ = content;
    most_stripped_ = most;
  };
  if (type == "Sequence") {
    if (depth >= kMaxSequenceDepth) fail_input(what, ": sequences are nested too deeply");
    for (const auto& member : members(json, "decoders", what)) add(member, what, depth + 1);
  } else if (type == "ByteLevel") {
    byte_level_ = true;
  } else if (type == "ByteFallback") {
    byte_fallback_ = true;
  } else if (type == "Fuse") {  // bytes are joined in any case
  } else if (type == "Metaspace") {
    const bool prefix = field_or(json, "add_prefix_space", what, true);
    const auto scheme =
        field_or<std::string>(json, "prepend_scheme", what, prefix ? "always" : "never");
    replacements_.emplace_back(field_or<std::string>(json, "replacement", what, "\xE2\x96\x81"),
                               " ");
    if (scheme != "never") strip(" ", 1);
  } else if (type == "Replace") {
    const auto pattern = json.find("pattern");
    if (pattern == json.end() || !pattern->contains("String"))
      fail_input(what, ": a Replace of a regular expression is not available");
    const auto from = field<std::string>(*pattern, "String", what);
    if (from.empty()) fail_input(what, ": a Replace of nothing");
    replacements_.emplace_back(from, field<std::string>(json, "content", what));
  } else if (type == "Strip") {
    if (field_or<int64_t>(json, "stop", what, 0) != 0)
      fail_input(what, ": a Strip at the end is not available");
    strip(field<std::string>(json, "content", what),
          static_cast<size_t>(std::max<int64_t>(0, field_or<int64_t>(json, "start", what, 0))));
  } else {
    fail_input(what, " ", type, " is not available; ByteLevel, Metaspace, ByteFallback, Fuse, ",
               "Replace, Strip and Sequence are");
  }
}

std::string TokenDecoder::bytes(const std::string& token) const {
  if (byte_fallback_ && is_byte_token(token))
    return std::string(1, static_cast<char>(std::strtol(token.c_str() + 3, nullptr, 16)));
  std::string out = token;
  if (byte_level_) {
    bool all = false;
    out = byte_level_bytes(token, all);
  }
  for (const auto& [from, to] : replacements_) out = replaced(out, from, to);
  return out;
}

std::string_view TokenDecoder::at_start(std::string_view bytes) const {
  for (size_t i = 0; i < most_stripped_ && bytes.starts_with(stripped_) && !stripped_.empty(); ++i)
    bytes.remove_prefix(stripped_.size());
  return bytes;
}

}  // namespace trireme
