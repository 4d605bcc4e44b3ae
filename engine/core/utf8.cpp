#include "engine/core/utf8.h"

#include <cstdint>
#include <cstring>

namespace trireme {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

enum class Form { kComplete, kTruncated, kInvalid };
struct Scan {
  Form form;
  size_t bytes;  // of the character, or of the longest partial character at the start of `text`
};

// First character of `text`. The bounds on the second byte exclude overlong forms, surrogates and
// values above U+10FFFF (RFC 3629, section 4).
Scan scan_character(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {Form::kComplete, 1};
  size_t bytes = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    bytes = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    bytes = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    bytes = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Form::kInvalid, 1};
  }
  for (size_t i = 1; i < bytes; ++i) {
    if (i == text.size()) return {Form::kTruncated, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < low || byte > high) return {Form::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Form::kComplete, bytes};
}

// Whether a complete character is a control character other than line feed and tab. U+0080 to
// U+009F are two bytes: for a terminal, U+009B starts a control sequence as ESC and '[' do.
bool is_control(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte == 0xC2) return static_cast<unsigned char>(text[1]) < 0xA0;
  return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight = 0;
    if (i + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {  // eight ASCII bytes, by far the common case
        i += sizeof(eight);
        continue;
      }
    }
    const Scan scan = scan_character(text.substr(i));
    if (scan.form != Form::kComplete) return i;
    i += scan.bytes;
  }
  return text.size();
}

std::string take_complete_utf8(std::string& pending, Utf8Repair repair) {
  std::string out;
  std::string_view rest = pending;
  while (!rest.empty()) {
    const size_t good = find_invalid_utf8(rest);
    out.append(rest.substr(0, good));
    rest.remove_prefix(good);
    if (rest.empty()) break;
    const Scan scan = scan_character(rest);
    if (scan.form == Form::kTruncated) break;
    out.append(kReplacement);
    rest.remove_prefix(repair == Utf8Repair::kMaximalPart ? scan.bytes : 1);
  }
  pending.erase(0, pending.size() - rest.size());
  return out;
}

std::string repaired_utf8(std::string bytes, Utf8Repair repair) {
  std::string out = take_complete_utf8(bytes, repair);
  const size_t parts = repair == Utf8Repair::kEachByte ? bytes.size() : bytes.empty() ? 0 : 1;
  for (size_t i = 0; i < parts; ++i) out += kReplacement;
  return out;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  const std::string_view shown = text.substr(0, max_bytes);
  for (size_t at = 0; at < shown.size();) {
    const size_t good = find_invalid_utf8(shown.substr(at, 4)) == 0 ? 0 : 1;
    const auto byte = static_cast<unsigned char>(shown[at]);
    if (good > 0 && !is_control(shown.substr(at))) {
      const size_t bytes = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
      out += shown.substr(at, bytes);
      at += bytes;
      continue;
    }
    constexpr char kDigits[] = "0123456789abcdef";
    out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    ++at;
  }
  if (shown.size() < text.size())
    out += "... and " + std::to_string(text.size() - shown.size()) + " bytes more";
  return out;
}

}  // namespace trireme
