// The text of a sequence while its tokens come, in pieces of valid UTF-8 that are never taken back.
//
// Text that a later token may change is held back (engine/text/detokenizer.h). The text ends before
// the first stop string in it (of those that become whole with the same byte: the longest), or
// behind it where stop strings belong to the text, and what may still become one is held back; so
// the pieces together are what the whole text would be, wherever tokens begin and end.
//
// A token's share of the text is what became whole with it, nothing as a rule for the first tokens
// of a character that several spell: the shares together are the text.
//
// Cost: O(bytes of the token), for each stop string.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
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
  bool at_start = false;                // nothing precedes the text (Tokenizer::detokenizer)
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

  // The next token; what is certain then is appended to `delta`. Nothing may come after stopped().
  // Tokens behind the end of the text are never told.
  void push(int32_t id, TokenRole role, TextDelta& delta);
  // There is no further token; the rest is appended. It may hold a stop string: see stopped().
  void finish(TextDelta& delta);
  // A stop string has ended the text; which.
  bool stopped() const { return stop_ >= 0; }
  const std::string& stop() const { return matcher_.stop(stop_); }

 private:
  struct Waiting {
    TokenText token;
    size_t begin;  // bytes of the text before its share
  };
  // A token whose share of the text is not known.
  struct Undecided {
    int32_t id;
    bool shown;
    bool may_stop;  // stop strings may end in its share
  };
  bool is_shown(int32_t id, TokenRole role) const;
  size_t add_shares(const DetokenizedText& now);
  void add_token(const Undecided& token, std::string_view text);
  void append_text(std::string_view text);
  void cut(size_t end);
  void release(size_t end, TextDelta& delta);
  void tell(size_t tokens, TextDelta& delta);

  const Tokenizer& tokenizer_;
  TextStreamOptions options_;
  std::unique_ptr<Detokenizer> detokenizer_;
  StopMatcher matcher_;
  int stop_ = -1;
  bool last_may_stop_ = false;  // of the last token that has its share
  int64_t generated_ = 0;
  std::deque<Undecided> undecided_;
  size_t unfinished_ = 0;  // the last tokens of waiting_, whose character is not complete
  std::string held_;       // text that may begin a stop string
  size_t length_ = 0;      // of the text so far, bytes, with held_
  int64_t characters_ = 0;
  std::deque<Waiting> waiting_;
};

// Bytes that a token stands for by itself: its spelling if it is a control token.
std::string token_bytes(const Tokenizer& tokenizer, int32_t id);

// Characters in valid UTF-8.
int64_t count_characters(std::string_view text);

}  // namespace trireme
