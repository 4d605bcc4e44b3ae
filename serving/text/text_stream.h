// The text of a sequence while its tokens come, in pieces of valid UTF-8 that are never taken back.
//
// A character that a token begins is held back until it is whole. A byte that belongs to no character is
// U+FFFD, an unfinished character at the end of the text one U+FFFD. The text ends before the first stop
// string in it (of those that become whole with the same byte: the longest), or behind it where stop strings
// belong to the text, and what may still become one is held back; so the pieces together are what the whole
// text would be, wherever tokens begin and end.
//
// A token's share of the text is what became whole with it, nothing as a rule for the first tokens of a
// character that several spell: the shares together are the text.
//
// Cost: O(bytes of the token), for each stop string.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "serving/text/stop_matcher.h"

namespace trireme {

struct TextStreamOptions {
  std::vector<std::string> stops = {};  // none empty
  bool include_stop = false;            // stop strings, and tokens that end the text, belong to it
  int64_t min_tokens = 0;               // stop strings that end in the first ones are none
  bool show_special = false;            // control tokens are written as they are spelled
  std::vector<int32_t> shown = {};      // these are in any case
  bool at_start = false;                // nothing precedes the text (Tokenizer::append_bytes)
  bool tell_tokens = false;             // TextDelta::tokens is filled
};

struct TokenText {
  int32_t id = 0;
  std::string text = {};   // its share; cut off where the text ends
  std::string bytes = {};  // that it stands for, which may be a part of a character
  int64_t offset = 0;      // characters of the text before its share
};

struct TextDelta {
  std::string text = {};
  std::vector<TokenText> tokens =
      {};  // of which nothing will change any more, in the order of push()
};

enum class TokenRole {
  kPrompt,  // stop strings in it are none
  kText,
  kEnd,  // ended the sequence
};

class TextStream {
 public:
  // The tokenizer must outlive this object.
  TextStream(const Tokenizer& tokenizer, TextStreamOptions options);

  // The next token; what is certain then is appended to `delta`. Nothing may come after stopped(). Tokens
  // behind the end of the text are never told.
  void push(int32_t id, TokenRole role, TextDelta& delta);
  // There is no further token; the rest is appended.
  void finish(TextDelta& delta);
  // A stop string has ended the text; which.
  bool stopped() const { return stop_ >= 0; }
  const std::string& stop() const { return matcher_.stop(stop_); }

 private:
  struct Waiting {
    TokenText token;
    size_t begin;  // bytes of the text before its share
  };
  void append_bytes(int32_t id, TokenRole role, std::string& out);
  bool find_stop(const std::string& text, size_t& end);
  void cut(size_t end);
  void release(size_t end, TextDelta& delta);
  void tell(size_t tokens, TextDelta& delta);

  const Tokenizer& tokenizer_;
  TextStreamOptions options_;
  StopMatcher matcher_;
  int stop_ = -1;
  bool at_start_;
  int64_t generated_ = 0;
  std::string pending_;    // bytes of an unfinished character
  size_t unfinished_ = 0;  // the last tokens of waiting_, whose share is not known
  std::string held_;       // text that may begin a stop string
  size_t length_ = 0;      // of the text so far, bytes, with held_
  int64_t characters_ = 0;
  std::deque<Waiting> waiting_;
};

// What a token stands for by itself, in valid UTF-8: its spelling if it is a control token.
std::string token_text(const Tokenizer& tokenizer, int32_t id);
std::string token_bytes(const Tokenizer& tokenizer, int32_t id);

// Characters in valid UTF-8.
int64_t count_characters(std::string_view text);

}  // namespace trireme
