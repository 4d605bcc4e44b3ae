// Streaming text of a sequence: pieces of valid UTF-8 that are never retracted.
//
// Text that a later token may change is held back (engine/text/detokenizer.h), and so is a possible
// prefix of a stop string. The text ends before the first stop string in it, or with include_stop
// after it. If several stop strings end with the same byte, the longest counts. So the pieces add
// up to the same text, however tokens divide it.
//
// A token's share of the text is the part that this token completes. It is usually empty for the
// first tokens of a character that several tokens spell. All shares together are the text.
//
// Cost: O(bytes of the token) per stop string.
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
  std::vector<std::string> stops = {};  // stop strings, none empty
  bool include_stop = false;            // keeps stop strings and stop tokens in the text
  // Stop strings that end within this many generated tokens are ignored.
  int64_t min_tokens = 0;
  bool show_special = false;        // includes the spelling of control tokens
  std::vector<int32_t> shown = {};  // control tokens that are always included
  bool at_start = false;            // no token precedes the text (Tokenizer::detokenizer)
  bool report_tokens = false;       // fills TextDelta::tokens
};

struct TokenText {
  int32_t id = 0;
  std::string text = {};  // its share of the text, truncated where the text ends
  // Bytes of the token itself, possibly a part of a character. Empty: it is not in the text.
  std::string bytes = {};
  int64_t offset = 0;  // number of characters (code points) of the text before its share
};

struct TextDelta {
  std::string text = {};
  std::vector<TokenText> tokens = {};  // tokens whose text is final, in the order of push()
};

enum class TokenRole {
  kPrompt,  // stop strings in it are ignored
  kText,    // generated token
  kEnd,     // stop token that ended the sequence
};

class TextStream {
 public:
  // The tokenizer must outlive this object.
  TextStream(const Tokenizer& tokenizer, TextStreamOptions options);

  // Adds the next token and appends the text that is now final to `delta`. Not allowed once
  // stopped(). Tokens after the end of the text are not reported.
  void push(int32_t id, TokenRole role, TextDelta& delta);
  // Ends the text: appends the rest of it to `delta`. A stop string may still be found, see
  // stopped().
  void finish(TextDelta& delta);
  // True if a stop string has ended the text.
  bool stopped() const { return stop_ >= 0; }
  // The stop string that has ended the text. Requires stopped().
  const std::string& stop() const { return matcher_.stop(stop_); }

 private:
  struct Waiting {
    TokenText token;
    size_t begin;  // offset of its share in the text, bytes
  };
  // Token whose share of the text is not known yet.
  struct Undecided {
    int32_t id;
    bool shown;
    bool may_stop;  // a stop string may end in its share
  };
  bool is_shown(int32_t id, TokenRole role) const;
  size_t add_shares(const DetokenizedText& now);
  void add_token(const Undecided& token, std::string_view text);
  void append_text(std::string_view text);
  void cut(size_t end);
  void release(size_t end, TextDelta& delta);
  void report(size_t tokens, TextDelta& delta);

  const Tokenizer& tokenizer_;
  TextStreamOptions options_;
  std::unique_ptr<Detokenizer> detokenizer_;
  StopMatcher matcher_;
  int stop_ = -1;
  bool last_may_stop_ = false;  // of the last token with a known share
  int64_t generated_ = 0;
  std::deque<Undecided> undecided_;
  size_t unfinished_ = 0;  // last tokens of waiting_ whose character is incomplete
  std::string held_;       // text that may start a stop string
  size_t length_ = 0;      // of the text so far in bytes, held_ included
  int64_t characters_ = 0;
  std::deque<Waiting> waiting_;
};

// Bytes of a token by itself; for a control token, its spelling.
std::string token_bytes(const Tokenizer& tokenizer, int32_t id);

// Number of characters (code points) in valid UTF-8.
int64_t count_characters(std::string_view text);

}  // namespace trireme
