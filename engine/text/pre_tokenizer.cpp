#include "engine/text/pre_tokenizer.h"

#include <algorithm>

#include "engine/text/json_fields.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

using Range = Words::Range;

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior behavior_of(const std::string& name, const std::string& what) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  fail_input(what, ": the behavior \"", name,
             "\" is not supported; supported: Removed, Isolated, MergedWithPrevious, "
             "MergedWithNext, Contiguous");
}

struct Part {
  Range range;
  bool delimiter;
};

// Splits a word into the expression's matches and the parts between; `invert`: the parts between
// are the delimiters.
void find_parts(const Regex& pattern, bool invert, std::string_view text, const Range& word,
                std::vector<Part>& parts) {
  parts.clear();
  // The expression sees only the word.
  const std::string_view inside = text.substr(word.begin, word.end - word.begin);
  size_t at = 0;
  Regex::Match match;
  for (RegexMatches matches(pattern, inside); matches.next(match); at = match.end) {
    if (match.begin > at) parts.push_back({{word.begin + at, word.begin + match.begin}, invert});
    parts.push_back({{word.begin + match.begin, word.begin + match.end}, !invert});
  }
  if (at < inside.size()) parts.push_back({{word.begin + at, word.end}, invert});
}

void join_parts(Behavior behavior, const std::vector<Part>& parts, std::vector<Range>& out) {
  const size_t first = out.size();
  switch (behavior) {
    case Behavior::kIsolated:
      for (const Part& p : parts) out.push_back(p.range);
      break;
    case Behavior::kRemoved:
      for (const Part& p : parts)
        if (!p.delimiter) out.push_back(p.range);
      break;
    case Behavior::kContiguous:
      for (size_t i = 0; i < parts.size(); ++i)
        if (i > 0 && parts[i].delimiter == parts[i - 1].delimiter)
          out.back().end = parts[i].range.end;
        else
          out.push_back(parts[i].range);
      break;
    case Behavior::kMergedWithPrevious:
      for (size_t i = 0; i < parts.size(); ++i)
        if (i > 0 && parts[i].delimiter && !parts[i - 1].delimiter)
          out.back().end = parts[i].range.end;
        else
          out.push_back(parts[i].range);
      break;
    case Behavior::kMergedWithNext:
      for (size_t i = parts.size(); i-- > 0;)
        if (i + 1 < parts.size() && parts[i].delimiter && !parts[i + 1].delimiter)
          out.back().begin = parts[i].range.begin;
        else
          out.push_back(parts[i].range);
      std::reverse(out.begin() + static_cast<int64_t>(first), out.end());
      break;
  }
}

void split(Words& words, const Regex& pattern, bool invert, Behavior behavior) {
  std::vector<Range> out;
  std::vector<Part> parts;
  out.reserve(words.ranges.size());
  for (const Range& word : words.ranges) {
    find_parts(pattern, invert, words.text, word, parts);
    join_parts(behavior, parts, out);
  }
  std::erase_if(out, [](const Range& range) { return range.begin == range.end; });
  words.ranges = std::move(out);
}

std::function<void(Words&)> splitter(const Regex& pattern, Behavior behavior, bool invert = false) {
  return [=](Words& words) { split(words, pattern, invert, behavior); };
}

// Concatenates the words in a new text, each replaced by change(word, is the input's first).
template <class Change>
void rewrite(Words& words, Change&& change) {
  std::string text;
  for (Range& word : words.ranges) {
    const bool first = words.first && &word == &words.ranges.front() && word.begin == 0;
    const size_t begin = text.size();
    text += change(std::string_view(words.text).substr(word.begin, word.end - word.begin), first);
    word = {begin, text.size()};
  }
  words.text = std::move(text);
}

// Expression of GPT-2 (Radford et al. 2019): contractions, words, numbers and signs, each with the
// space before it.
constexpr const char* kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Expression of Whitespace: words of Rust's regular expressions, which include joiners.
constexpr const char* kWhitespaceWords = R"([\w\p{Join_Control}]+|[^\w\p{Join_Control}\s]+)";

}  // namespace

PreTokenizer::PreTokenizer(const nlohmann::json& json, const std::string& what) {
  if (!json.is_null()) add(json, what + ": pre_tokenizer", 0);
}

void PreTokenizer::add_byte_level(const nlohmann::json& json, const std::string& what) {
  byte_level_ = true;
  if (field_or(json, "add_prefix_space", what, true))
    steps_.push_back([](Words& words) {
      rewrite(words, [](std::string_view word, bool) {
        return word.starts_with(' ') ? std::string(word) : concat(' ', word);
      });
    });
  if (field_or(json, "use_regex", what, true))
    steps_.push_back(splitter(Regex(kByteLevelWords, what), Behavior::kIsolated));
}

void PreTokenizer::add_metaspace(const nlohmann::json& json, const std::string& what) {
  const auto replacement = field_or<std::string>(json, "replacement", what, "\xE2\x96\x81");
  keeps_text_ = keeps_text_ && !replacement.empty();
  // Older files have add_prefix_space instead.
  const bool prefix = field_or(json, "add_prefix_space", what, true);
  const auto scheme =
      field_or<std::string>(json, "prepend_scheme", what, prefix ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fail_input(what, ": the prepend_scheme \"", scheme,
               "\" is not supported; supported: always, first, never");
  steps_.push_back([=](Words& words) {
    rewrite(words, [&](std::string_view word, bool first) {
      std::string out;
      for (const char c : word) c == ' ' ? void(out += replacement) : out.push_back(c);
      const bool wanted = scheme == "always" || (scheme == "first" && first);
      return wanted && !out.starts_with(replacement) ? replacement + out : out;
    });
  });
  if (field_or(json, "split", what, true))
    steps_.push_back(splitter(Regex(quoted_pattern(replacement), what), Behavior::kMergedWithNext));
}

void PreTokenizer::add(const nlohmann::json& json, const std::string& what, int depth) {
  const std::string type = type_of(json, what);
  if (byte_level_ && type != "Sequence")
    fail_input(what, ": a ", type, " after a ByteLevel is not supported");
  if (type == "Sequence") {
    if (depth >= kMaxSequenceDepth) fail_input(what, ": sequences are nested too deeply");
    for (const auto& member : members(json, "pretokenizers", what)) add(member, what, depth + 1);
  } else if (type == "ByteLevel") {
    add_byte_level(json, what);
  } else if (type == "Metaspace") {
    add_metaspace(json, what);
  } else if (type == "Split") {
    const Regex pattern = pattern_of(json, what);
    const Behavior behavior = behavior_of(field<std::string>(json, "behavior", what), what);
    keeps_text_ = keeps_text_ && behavior != Behavior::kRemoved;
    steps_.push_back(splitter(pattern, behavior, field_or(json, "invert", what, false)));
  } else if (type == "Digits") {
    const bool individual = field_or(json, "individual_digits", what, false);
    steps_.push_back(splitter(Regex(R"(\p{N})", what),
                              individual ? Behavior::kIsolated : Behavior::kContiguous));
  } else if (type == "Whitespace") {
    keeps_text_ = false;
    steps_.push_back(splitter(Regex(kWhitespaceWords, what), Behavior::kRemoved, true));
  } else if (type == "WhitespaceSplit") {
    keeps_text_ = false;
    steps_.push_back(splitter(Regex(R"(\s)", what), Behavior::kRemoved));
  } else if (type == "Punctuation") {
    const Behavior behavior =
        behavior_of(field_or<std::string>(json, "behavior", what, "Isolated"), what);
    keeps_text_ = keeps_text_ && behavior != Behavior::kRemoved;
    steps_.push_back(splitter(Regex(R"([!-\/:-@\[-`{-~\p{P}])", what), behavior));
  } else {
    fail_input(what, " ", type,
               " is not supported; supported: ByteLevel, Split, Digits, Whitespace, ",
               "WhitespaceSplit, Metaspace, Punctuation, Sequence");
  }
}

void PreTokenizer::apply(Words& words) const {
  for (const auto& step : steps_) step(words);
}

}  // namespace trireme
