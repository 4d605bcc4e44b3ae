#include "serving/text/text_stream.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/utf8.h"

namespace trireme {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string token_bytes(const Tokenizer& tokenizer, int32_t id) {
  if (tokenizer.is_control(id)) return tokenizer.token(id);
  std::string bytes;
  tokenizer.append_bytes(id, false, bytes);
  return bytes;
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  std::string bytes = token_bytes(tokenizer, id);
  std::string text = take_complete_utf8(bytes);
  return bytes.empty() ? text : text + kReplacement;
}

TextStream::TextStream(const Tokenizer& tokenizer, TextStreamOptions options)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      matcher_(options_.stops),
      at_start_(options_.at_start) {}

void TextStream::append_bytes(int32_t id, TokenRole role, std::string& out) {
  const bool control = tokenizer_.is_control(id);
  const bool hidden = role == TokenRole::kEnd && !options_.include_stop;
  if (control && !hidden && (options_.show_special || std::ranges::count(options_.shown, id) > 0))
    out += tokenizer_.token(id);
  if (!control && !hidden) tokenizer_.append_bytes(id, at_start_, out);
  at_start_ = at_start_ && control;
}

void TextStream::push(int32_t id, TokenRole role, TextDelta& delta) {
  TRIREME_CHECK(!stopped(), "a token behind the end of the text");
  const size_t before = pending_.size();
  append_bytes(id, role, pending_);
  TokenText token{.id = id, .offset = characters_};
  if (options_.tell_tokens) token.bytes = pending_.substr(before);
  const std::string text = take_complete_utf8(pending_);
  const size_t begin = length_;
  length_ += text.size();
  held_ += text;
  if (options_.tell_tokens) {
    characters_ += count_characters(text);
    token.text = text;
    waiting_.push_back({std::move(token), begin});
    unfinished_ = pending_.empty() ? 0 : unfinished_ + 1;
  }
  if (role != TokenRole::kPrompt) ++generated_;
  size_t end = length_;
  if (role == TokenRole::kText && generated_ > options_.min_tokens) {
    if (find_stop(text, end))
      cut(end);
    else
      end -= matcher_.held();
  }
  release(end, delta);
}

// Goes on by a token's share, which the text ends with. Where a stop string ends in it: the end of the text.
bool TextStream::find_stop(const std::string& text, size_t& end) {
  for (size_t i = 0; i < text.size(); ++i) {
    stop_ = matcher_.push(text[i]);
    if (!stopped()) continue;
    end = length_ - text.size() + i + 1 - (options_.include_stop ? 0 : stop().size());
    return true;
  }
  return false;
}

// The text ends there, and so do the shares of its tokens.
void TextStream::cut(size_t end) {
  held_.resize(held_.size() - (length_ - end));
  length_ = end;
  pending_.clear();
  unfinished_ = 0;
  while (!waiting_.empty() && waiting_.back().begin >= end) waiting_.pop_back();
  if (waiting_.empty()) return;
  Waiting& last = waiting_.back();
  last.token.text.resize(std::min(last.token.text.size(), end - last.begin));
}

// The text up to there will not change, nor will the tokens whose shares lie in it.
void TextStream::release(size_t end, TextDelta& delta) {
  const size_t bytes = held_.size() - (length_ - end);
  delta.text.append(held_, 0, bytes);
  held_.erase(0, bytes);
  size_t tokens = 0;
  const size_t known = waiting_.size() - unfinished_;
  while (tokens < known && waiting_[tokens].begin + waiting_[tokens].token.text.size() <= end)
    ++tokens;
  tell(tokens, delta);
}

void TextStream::tell(size_t tokens, TextDelta& delta) {
  for (size_t i = 0; i < tokens; ++i) delta.tokens.push_back(std::move(waiting_[i].token));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(tokens));
}

void TextStream::finish(TextDelta& delta) {
  if (!pending_.empty()) {
    held_ += kReplacement;
    length_ += sizeof(kReplacement) - 1;
    pending_.clear();
    if (!waiting_.empty()) waiting_.back().token.text += kReplacement;
  }
  unfinished_ = 0;
  release(length_, delta);
}

}  // namespace trireme
