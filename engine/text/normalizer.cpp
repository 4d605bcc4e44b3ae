#include "engine/text/normalizer.h"

#include "engine/text/json_fields.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

using Step = std::function<std::string(std::string)>;

// NFC: a syllable of three bytes may come from three Jamo of three bytes, the one-byte K from the
// Kelvin sign.
constexpr int64_t kNfcShrinking = 3, kMaxShrinking = 100;

Step normal_form(NormalForm form) {
  return [form](const std::string& text) { return normalize(text, form); };
}

Step replace(const Regex& pattern, const std::string& content) {
  return [pattern, content](std::string text) {
    std::string out;
    size_t at = 0;
    bool found = false;
    Regex::Match match;
    if (text.empty()) return text;  // the tokenizers library does not search an empty text
    for (RegexMatches matches(pattern, text); matches.next(match); at = match.end) {
      out.append(text, at, match.begin - at);
      out += content;
      found = true;
    }
    if (!found) return text;
    return out.append(text, at);
  };
}

Step strip(bool left, bool right) {
  return [left, right](const std::string& text) {
    size_t begin = 0, end = 0, at = 0;  // end: after the last character that is not white space
    bool seen = false;
    while (at < text.size()) {
      const size_t start = at;
      if (is_white_space(next_character(text, at))) continue;
      if (!seen) begin = start;
      seen = true;
      end = at;
    }
    if (!seen) return std::string(left || right ? "" : text);
    if (!left) begin = 0;
    if (!right) end = text.size();
    return text.substr(begin, end - begin);
  };
}

bool never_shrinks(const nlohmann::json& json, const std::string& type) {
  if (type == "Prepend") return true;
  const nlohmann::json pattern = json.value("pattern", nlohmann::json());
  return type == "Replace" && pattern.is_object() && pattern.contains("String") &&
         pattern["String"].is_string() && json.contains("content") && json["content"].is_string() &&
         json["content"].get<std::string>().size() >= pattern["String"].get<std::string>().size();
}

}  // namespace

Normalizer::Normalizer(const nlohmann::json& json, const std::string& what) {
  if (!json.is_null()) add(json, what + ": normalizer", 0);
}

void Normalizer::add(const nlohmann::json& json, const std::string& what, int depth) {
  const std::string type = type_of(json, what);
  if (type != "Sequence" && type != "NFC" && !never_shrinks(json, type)) shrinking_ = 0;
  if (type == "Sequence") {
    if (depth >= kMaxSequenceDepth) fail_input(what, ": sequences are nested too deeply");
    for (const auto& member : members(json, "normalizers", what)) add(member, what, depth + 1);
  } else if (type == "NFC") {
    shrinking_ = shrinking_ > kMaxShrinking ? 0 : shrinking_ * kNfcShrinking;
    steps_.push_back(normal_form(NormalForm::kNfc));
  } else if (type == "NFD") {
    steps_.push_back(normal_form(NormalForm::kNfd));
  } else if (type == "NFKC") {
    steps_.push_back(normal_form(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    steps_.push_back(normal_form(NormalForm::kNfkd));
  } else if (type == "Lowercase") {
    steps_.push_back([](const std::string& text) { return lower_case(text); });
  } else if (type == "StripAccents") {
    steps_.push_back([](const std::string& text) { return strip_marks(text); });
  } else if (type == "Strip") {
    steps_.push_back(
        strip(field_or(json, "strip_left", what, true), field_or(json, "strip_right", what, true)));
  } else if (type == "Prepend") {
    steps_.push_back([prefix = field<std::string>(json, "prepend", what)](const std::string& text) {
      return text.empty() ? text : prefix + text;
    });
  } else if (type == "Replace") {
    steps_.push_back(replace(pattern_of(json, what), field<std::string>(json, "content", what)));
  } else {
    fail_input(what, " ", type,
               " is not supported; supported: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, ",
               "Strip, Prepend, Replace, Sequence");
  }
}

std::string Normalizer::apply(std::string text) const {
  // Compatible decomposition makes at most eleven bytes of one; far more means a hostile file.
  const size_t most = 64 * text.size() + 4096;
  for (const auto& step : steps_) {
    text = step(std::move(text));
    if (text.size() > most)
      fail_input("the tokenizer's normalizers make too long a text: ", text.size(), " bytes from ",
                 (most - 4096) / 64);
  }
  return text;
}

}  // namespace trireme
