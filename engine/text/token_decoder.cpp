#include "engine/text/token_decoder.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "engine/core/utf8.h"
#include "engine/text/json_fields.h"
#include "engine/text/unicode.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

constexpr char kOneReplacement[] = "\xEF\xBF\xBD";  // U+FFFD
constexpr size_t kMaxDecoderStages = 32;
constexpr size_t kMaxReplacedBytes = 256;    // of the texts of a Replace after a Fuse
constexpr size_t kMaxTextOfToken = 1 << 20;  // bytes

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
         token.find_first_not_of("0123456789ABCDEFabcdef", 3) == 5;
}

char byte_of_token(const std::string& token) {
  return static_cast<char>(std::strtol(token.c_str() + 3, nullptr, 16));
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out.append(text, at, found - at);
    if (found == std::string::npos) return out;
    out += to;
    if (out.size() > kMaxTextOfToken)
      fail_input("decoder: a token becomes more than ", kMaxTextOfToken, " bytes of text");
    at = found + from.size();
  }
}

// Number of characters `c` at the end of a text, at most `most`.
size_t trailing(std::string_view text, std::string_view c, size_t most) {
  size_t count = 0;
  while (count < most && text.ends_with(c)) {
    text.remove_suffix(c.size());
    ++count;
  }
  return count;
}

size_t leading(std::string_view text, std::string_view c, size_t most) {
  size_t count = 0;
  while (count < most && text.starts_with(c)) {
    text.remove_prefix(c.size());
    ++count;
  }
  return count;
}

std::string one_character(const nlohmann::json& json, const char* name, const std::string& what,
                          const char* fallback) {
  auto c = field_or<std::string>(json, name, what, fallback);
  if (c.empty() || find_invalid_utf8(c) != c.size() || character_bytes(c[0]) != c.size())
    fail_input(what, ": \"", name, "\" is \"", c.substr(0, 60), "\", which is not one character");
  return c;
}

}  // namespace

TokenDecoder::TokenDecoder(const nlohmann::json& json, const std::string& what) {
  if (json.is_null())
    add_stage({.kind = Kind::kJoin, .from = " "}, what);
  else
    add(json, what + ": decoder", 0);
}

void TokenDecoder::add(const nlohmann::json& json, const std::string& what, int depth) {
  const std::string type = type_of(json, what);
  if (type == "Sequence") {
    if (depth >= kMaxSequenceDepth) fail_input(what, ": sequences are nested too deeply");
    for (const auto& member : members(json, "decoders", what)) add(member, what, depth + 1);
  } else if (type == "ByteLevel") {
    if (fused_) fail_input(what, ": a ByteLevel after a Fuse is not supported");
    add_stage({.kind = Kind::kByteLevel}, what);
    fused_ = true;
  } else if (type == "ByteFallback") {
    const bool again = std::ranges::count(stages_, Kind::kByteFallback, &Stage::kind) > 0;
    if (fused_ || again)
      fail_input(what, ": a ByteFallback after ", fused_ ? "a Fuse" : "another",
                 " is not supported");
    add_stage({.kind = Kind::kByteFallback}, what);
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Metaspace") {
    add_metaspace(json, what);
  } else if (type == "Replace") {
    add_replace(json, what);
  } else if (type == "Strip") {
    add_strip(json, what);
  } else {
    fail_input(what, " ", type,
               " is not supported; supported: ByteLevel, Metaspace, ByteFallback, Fuse, ",
               "Replace, Strip, Sequence");
  }
}

void TokenDecoder::add_stage(Stage stage, const std::string& what) {
  if (stages_.size() >= kMaxDecoderStages)
    fail_input(what, " has more than ", kMaxDecoderStages, " parts");
  stage.fused = fused_;
  stages_.push_back(std::move(stage));
}

void TokenDecoder::add_metaspace(const nlohmann::json& json, const std::string& what) {
  const bool prefix = field_or(json, "add_prefix_space", what, true);
  const auto scheme =
      field_or<std::string>(json, "prepend_scheme", what, prefix ? "always" : "never");
  Stage stage{.kind = Kind::kMetaspace,
              .from = one_character(json, "replacement", what, "\xE2\x96\x81"),
              .to = " "};
  stage.drops_first = scheme != "never";
  add_stage(std::move(stage), what);
}

void TokenDecoder::add_replace(const nlohmann::json& json, const std::string& what) {
  const auto pattern = json.find("pattern");
  if (pattern == json.end() || !pattern->contains("String"))
    fail_input(what, ": a Replace of a regular expression is not supported");
  const auto from = field<std::string>(*pattern, "String", what);
  const auto to = field<std::string>(json, "content", what);
  if (from.empty()) fail_input(what, ": a Replace of an empty string");
  if (fused_ && std::max(from.size(), to.size()) > kMaxReplacedBytes)
    fail_input(what, ": a Replace after a Fuse has texts of ", from.size(), " and ", to.size(),
               " bytes, at most ", kMaxReplacedBytes, " are supported");
  expands_ = expands_ || to.size() > from.size();
  add_stage({.kind = Kind::kReplace, .from = from, .to = to}, what);
}

void TokenDecoder::add_strip(const nlohmann::json& json, const std::string& what) {
  const auto count = [&](const char* name) {
    const int64_t value = field_or<int64_t>(json, name, what, 0);
    return static_cast<size_t>(std::clamp<int64_t>(value, 0, kMaxTokenBytes));
  };
  Stage stage{.kind = Kind::kStrip, .from = one_character(json, "content", what, " ")};
  stage.left = count("start");
  stage.right = count("stop");
  add_stage(std::move(stage), what);
}

void TokenDecoder::strip(const Stage& stage, std::string& token) {
  token.erase(0, leading(token, stage.from, stage.left) * stage.from.size());
  token.resize(token.size() - trailing(token, stage.from, stage.right) * stage.from.size());
}

std::string TokenDecoder::bytes(const std::string& token) const {
  std::string text = token;
  for (const Stage& stage : stages_) {
    bool all = false;
    if (stage.kind == Kind::kByteFallback && is_byte_token(text))
      return std::string(1, byte_of_token(text));
    if (stage.kind == Kind::kJoin) text.insert(0, stage.from);
    if (stage.kind == Kind::kByteLevel) text = byte_level_bytes(text, all);
    if (stage.kind == Kind::kStrip && !stage.fused) strip(stage, text);
    if (stage.kind == Kind::kReplace || stage.kind == Kind::kMetaspace)
      text = replaced(text, stage.from, stage.to);
  }
  return text;
}

// --- Stream ---

TokenDecoder::Stream::Stream(const TokenDecoder& decoder, bool at_start)
    : decoder_(decoder), states_(decoder.stages_.size()) {
  for (State& state : states_) state.first = at_start;
}

void TokenDecoder::Stream::push(std::string token, DetokenizedText& out) {
  text_.clear();
  joined_run_ = false;
  run_text_ = 0;
  feed(0, std::move(token));
  const bool decided = !joined_run_ || run_is_invalid_;
  if (decided && !run_.empty()) settle_run(run_text_, out);
  if (!joined_run_) out.shares.push_back(text_.size() - run_text_);
  out.text += text_;
}

void TokenDecoder::Stream::skip(DetokenizedText& out) {
  if (run_.empty())
    out.shares.push_back(0);
  else
    run_.push_back({false, 0});
}

void TokenDecoder::Stream::finish(DetokenizedText& out) {
  text_.clear();
  run_text_ = 0;
  for (size_t i = 0; i < states_.size(); ++i) finish_stage(i);
  if (!run_.empty()) settle_run(run_text_, out);
  out.text += text_;
  run_is_invalid_ = false;
}

bool TokenDecoder::Stream::has_partial() const {
  for (size_t i = 0; i < states_.size(); ++i) {
    const Kind kind = decoder_.stages_[i].kind;
    if ((kind == Kind::kByteLevel || kind == Kind::kReplace) && !states_[i].held.empty())
      return true;
  }
  return false;
}

void TokenDecoder::Stream::feed(size_t stage, std::string text) {
  if (stage == states_.size()) {
    text_ += text;
    return;
  }
  const Stage& what = decoder_.stages_[stage];
  State& state = states_[stage];
  switch (what.kind) {
    case Kind::kJoin:
      if (!state.first) text.insert(0, what.from);
      state.first = false;
      return feed(stage + 1, std::move(text));
    case Kind::kMetaspace: {
      const bool drops = state.first && what.drops_first;
      if (!what.fused) state.first = false;
      return feed(stage + 1, replaced(text, what.from, drops ? "" : what.to));
    }
    case Kind::kByteLevel: {
      bool all = false;
      state.held += byte_level_bytes(text, all);
      return feed(stage + 1, take_complete_utf8(state.held, Utf8Repair::kMaximalPart));
    }
    case Kind::kByteFallback:
      if (is_byte_token(text)) return push_byte(stage, byte_of_token(text));
      flush_run(stage);
      return feed(stage + 1, std::move(text));
    case Kind::kReplace:
      if (what.fused) return replace_fused(stage, text);
      return feed(stage + 1, replaced(text, what.from, what.to));
    case Kind::kStrip:
      if (what.fused) return strip_fused(stage, std::move(text));
      strip(what, text);
      return feed(stage + 1, std::move(text));
  }
}

void TokenDecoder::Stream::finish_stage(size_t stage) {
  std::string held = std::exchange(states_[stage].held, {});
  switch (decoder_.stages_[stage].kind) {
    case Kind::kByteFallback: states_[stage].held = std::move(held); return flush_run(stage);
    case Kind::kByteLevel:
      return feed(stage + 1, repaired_utf8(std::move(held), Utf8Repair::kMaximalPart));
    case Kind::kReplace: return feed(stage + 1, std::move(held));
    default: return;  // text held by a Strip is dropped
  }
}

// Holds back a suffix that may start the text to be replaced.
void TokenDecoder::Stream::replace_fused(size_t stage, const std::string& text) {
  const Stage& what = decoder_.stages_[stage];
  std::string& held = states_[stage].held;
  held += text;
  std::string out;
  size_t at = 0;
  for (size_t found = held.find(what.from); found != std::string::npos;
       found = held.find(what.from, at)) {
    out.append(held, at, found - at).append(what.to);
    at = found + what.from.size();
  }
  size_t kept = std::min(held.size() - at, what.from.size() - 1);
  while (!held.ends_with(std::string_view(what.from).substr(0, kept))) --kept;
  out.append(held, at, held.size() - kept - at);
  held.erase(0, held.size() - kept);
  feed(stage + 1, std::move(out));
}

// Trailing characters may be the text's last ones and are held back.
void TokenDecoder::Stream::strip_fused(size_t stage, std::string text) {
  const Stage& what = decoder_.stages_[stage];
  State& state = states_[stage];
  if (state.first) {
    const size_t count = leading(text, what.from, what.left - state.stripped);
    text.erase(0, count * what.from.size());
    state.stripped += count;
    state.first = text.empty();
  }
  state.held += text;
  const size_t kept = trailing(state.held, what.from, what.right) * what.from.size();
  text = state.held.substr(0, state.held.size() - kept);
  state.held.erase(0, text.size());
  feed(stage + 1, std::move(text));
}

// --- runs of byte tokens ---
// A run that is valid UTF-8 becomes one token, any other a U+FFFD per byte; a run is known to be
// invalid as soon as a byte does not continue a character.

void TokenDecoder::Stream::push_byte(size_t stage, char byte) {
  if (run_is_invalid_) return feed(stage + 1, kOneReplacement);
  std::string& held = states_[stage].held;
  held += byte;
  joined_run_ = true;
  run_.push_back({true, 0});
  std::string tail = held.substr(complete_);
  if (find_invalid_utf8(tail) == tail.size()) {
    run_.back().share = tail.size();
    complete_ = held.size();
  } else if (!take_complete_utf8(tail).empty()) {
    run_is_invalid_ = true;
    flush_run(stage);
    run_is_invalid_ = true;
  }
}

// Ends the run, or flushes it once it is known to be invalid.
void TokenDecoder::Stream::flush_run(size_t stage) {
  const std::string bytes = std::exchange(states_[stage].held, {});
  const bool valid = !run_is_invalid_ && complete_ == bytes.size();
  run_is_invalid_ = false;
  complete_ = 0;
  if (bytes.empty()) return;
  const size_t before = text_.size();
  if (valid)
    feed(stage + 1, bytes);
  else
    for (size_t i = 0; i < bytes.size(); ++i) feed(stage + 1, kOneReplacement);
  run_text_ = text_.size() - before;
  if (!valid)
    for (RunToken& token : run_) token.share = token.is_byte ? sizeof(kOneReplacement) - 1 : 0;
}

// Assigns the shares of a decided run, from its end: later stages may have removed characters at
// the start.
void TokenDecoder::Stream::settle_run(size_t bytes, DetokenizedText& out) {
  for (size_t i = run_.size(); i-- > 0;) {
    RunToken& token = run_[i];
    token.share = i == 0 ? bytes : std::min(token.share, bytes);
    bytes -= token.share;
  }
  for (const RunToken& token : run_) out.shares.push_back(token.share);
  run_.clear();
}

}  // namespace trireme
