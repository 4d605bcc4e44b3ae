#include "engine/io/strict_json.h"

#include "engine/io/strict_json_builder.h"

namespace trireme {

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
  try {
    return nlohmann::json::parse(json_text.begin(), json_text.end()).is_discarded();
  } catch (const nlohmann::json::parse_error& error) {
    return std::string_view(error.what()).find("invalid string: surrogate U+D") !=
           std::string_view::npos;
  }
}

template nlohmann::json parse_strict_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_strict_json(std::string_view, const std::string&,
                                                  const JsonLimits&);
template nlohmann::json parse_json_text(std::string_view);
template nlohmann::ordered_json parse_json_text(std::string_view);

}  // namespace trireme
