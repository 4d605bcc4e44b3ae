#include "serving/text/text_stream.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/utf8.h"

namespace trireme {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string token_bytes(const Tokenizer& tokenizer, int32_t id) {
  if (tokenizer.is_control(id)) return tokenizer.token(id);
  std::string bytes;
  tokenizer.append_bytes(id, bytes);
  return bytes;
}

TextStream::TextStream(const Tokenizer& tokenizer, TextStreamOptions options)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      detokenizer_(tokenizer.detokenizer(options_.at_start)),
      matcher_(options_.stops) {}

bool TextStream::is_shown(int32_t id, TokenRole role) const {
  if (role == TokenRole::kEnd && !options_.include_stop) return false;
  return !tokenizer_.is_control(id) || options_.show_special ||
         std::ranges::count(options_.shown, id) > 0;
}

void TextStream::push(int32_t id, TokenRole role, TextDelta& delta) {
  TRIREME_CHECK(!stopped(), "push() after a stop string has ended the text");
  const bool shown = is_shown(id, role);
  if (role != TokenRole::kPrompt) ++generated_;
  undecided_.push_back({.id = id,
                        .shown = shown,
                        .may_stop = role == TokenRole::kText && generated_ > options_.min_tokens});
  DetokenizedText now;
  detokenizer_->push(id, shown, now);
  (void)add_shares(now);
  const bool partial = options_.report_tokens && !stopped() && detokenizer_->has_partial();
  unfinished_ = partial ? unfinished_ + now.shares.size() : 0;
  release(stopped() ? length_ : length_ - (last_may_stop_ ? matcher_.held() : 0), delta);
}

// Appends the shares of tokens that are known now, up to a stop string; returns the bytes of all.
size_t TextStream::add_shares(const DetokenizedText& now) {
  size_t at = 0;
  for (const size_t share : now.shares) {
    TRIREME_CHECK(!undecided_.empty(),
                  "the detokenizer reports more shares than tokens were pushed");
    if (!stopped()) add_token(undecided_.front(), std::string_view(now.text).substr(at, share));
    undecided_.pop_front();
    at += share;
  }
  return at;
}

void TextStream::add_token(const Undecided& token, std::string_view text) {
  if (options_.report_tokens) {
    TokenText reported{.id = token.id, .text = std::string(text), .offset = characters_};
    if (token.shown) reported.bytes = token_bytes(tokenizer_, token.id);
    // At the start of a text a token may have fewer bytes than elsewhere.
    if (find_invalid_utf8(reported.bytes) == reported.bytes.size() &&
        reported.bytes.ends_with(text))
      reported.bytes = text;
    characters_ += count_characters(text);
    waiting_.push_back({std::move(reported), length_});
  }
  last_may_stop_ = token.may_stop;
  append_text(text);
}

// Appends text of the last token. A stop string in it ends the text.
void TextStream::append_text(std::string_view text) {
  held_ += text;
  length_ += text.size();
  if (!last_may_stop_) return;
  for (size_t i = 0; i < text.size(); ++i) {
    stop_ = matcher_.push(text[i]);
    if (!stopped()) continue;
    return cut(length_ - text.size() + i + 1 - (options_.include_stop ? 0 : stop().size()));
  }
}

// Truncates the text and its tokens' shares at `end`.
void TextStream::cut(size_t end) {
  held_.resize(held_.size() - (length_ - end));
  length_ = end;
  unfinished_ = 0;
  while (!waiting_.empty() && waiting_.back().begin >= end) waiting_.pop_back();
  if (waiting_.empty()) return;
  Waiting& last = waiting_.back();
  last.token.text.resize(std::min(last.token.text.size(), end - last.begin));
}

// Appends to `delta` the text up to `end`, which is final, and the tokens with shares in it.
void TextStream::release(size_t end, TextDelta& delta) {
  const size_t bytes = held_.size() - (length_ - end);
  delta.text.append(held_, 0, bytes);
  held_.erase(0, bytes);
  size_t tokens = 0;
  const size_t known = waiting_.size() - unfinished_;
  while (tokens < known && waiting_[tokens].begin + waiting_[tokens].token.text.size() <= end)
    ++tokens;
  report(tokens, delta);
}

void TextStream::report(size_t tokens, TextDelta& delta) {
  for (size_t i = 0; i < tokens; ++i) delta.tokens.push_back(std::move(waiting_[i].token));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(tokens));
}

void TextStream::finish(TextDelta& delta) {
  DetokenizedText now;
  detokenizer_->finish(now);
  const size_t shared = add_shares(now);
  const std::string_view rest = std::string_view(now.text).substr(shared);
  if (!rest.empty() && !stopped()) {
    if (!waiting_.empty()) waiting_.back().token.text += rest;
    append_text(rest);
  }
  unfinished_ = 0;
  release(length_, delta);
}

}  // namespace trireme
