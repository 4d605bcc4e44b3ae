#include "engine/io/strict_json.h"

#include <algorithm>
#include <charconv>

#include "engine/io/strict_json_builder.h"

namespace trireme {
namespace {

constexpr size_t kEscape = 6;  // characters of \uXXXX

// Code unit of the \uXXXX escape at the start of `text`; 0 if there is none.
uint32_t escaped_unit(std::string_view text) {
  uint32_t unit = 0;
  if (text.size() < kEscape || !text.starts_with("\\u")) return 0;
  const char* const end = text.data() + kEscape;
  return std::from_chars(text.data() + 2, end, unit, 16).ptr == end ? unit : 0;
}

bool is_high_surrogate(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// The text with U+FFFD in place of each escaped half of a surrogate pair.
std::string without_lone_surrogates(std::string_view text) {
  std::string out(text);
  for (size_t at = text.find('\\'); at < text.size(); at = text.find('\\', at)) {
    const uint32_t unit = escaped_unit(text.substr(at));
    const std::string_view rest = text.substr(std::min(at + kEscape, text.size()));
    if (is_high_surrogate(unit) && is_low_surrogate(escaped_unit(rest))) {
      at += 2 * kEscape;
    } else if (is_high_surrogate(unit) || is_low_surrogate(unit)) {
      out.replace(at, kEscape, "\\ufffd");
      at += kEscape;
    } else {
      at += 2;  // any other escape, including that of a backslash
    }
  }
  return out;
}

}  // namespace

template <class JsonType>
JsonType parse_strict_json(std::string_view json_text, const std::string& what,
                           const JsonLimits& limits) {
  StrictJsonBuilder<JsonType> builder(what, limits);
  JsonType::sax_parse(json_text.begin(), json_text.end(), &builder);
  return builder.take();
}

template <class JsonType>
JsonType parse_json_text(std::string_view json_text) {
  return JsonType::parse(json_text.begin(), json_text.end(), nullptr, /*allow_exceptions=*/false);
}

bool has_lone_surrogate(std::string_view json_text) {
  const std::string repaired = without_lone_surrogates(json_text);
  return repaired != json_text && parse_json_text<nlohmann::json>(json_text).is_discarded() &&
         !parse_json_text<nlohmann::json>(repaired).is_discarded();
}

template nlohmann::json parse_strict_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_strict_json(std::string_view, const std::string&,
                                                  const JsonLimits&);
template nlohmann::json parse_json_text(std::string_view);
template nlohmann::ordered_json parse_json_text(std::string_view);

}  // namespace trireme
