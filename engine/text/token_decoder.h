// Decoder of a tokenizer.json: stages through which tokens become text, as in the tokenizers
// library.
//
// ByteLevel, Metaspace, ByteFallback, Fuse, Replace (of a string), Strip and Sequence; without a
// decoder tokens are joined with spaces. A stage gets the tokens that the one before it makes, and
// behind a Fuse or a ByteLevel the text as a single token.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/detokenizer.h"

namespace trireme {

class TokenDecoder {
 public:
  // `json`: the object "decoder", or null. `what` begins messages: the file.
  TokenDecoder(const nlohmann::json& json, const std::string& what);
  // Bytes that a token adds behind others; a byte token is its byte.
  std::string bytes(const std::string& token) const;
  // bytes() of a token may be longer than the token; InputError there where it is far too long.
  bool expands() const { return expands_; }

  class Stream;

 private:
  enum class Kind { kJoin, kByteLevel, kByteFallback, kMetaspace, kReplace, kStrip };
  struct Stage {
    Kind kind;
    bool fused = false;     // its input is a single token
    std::string from = {};  // Strip: the character
    std::string to = {};
    size_t left = 0, right = 0;
    bool drops_first = false;  // Metaspace: no spaces in the first token
  };
  void add(const nlohmann::json& json, const std::string& what, int depth);
  void add_stage(Stage stage, const std::string& what);
  void add_metaspace(const nlohmann::json& json, const std::string& what);
  void add_replace(const nlohmann::json& json, const std::string& what);
  void add_strip(const nlohmann::json& json, const std::string& what);
  static void strip(const Stage& stage, std::string& token);

  std::vector<Stage> stages_;
  bool fused_ = false, expands_ = false;
};

// Text of tokens one by one. The decoder must outlive it.
class TokenDecoder::Stream {
 public:
  // at_start: no token precedes the text.
  Stream(const TokenDecoder& decoder, bool at_start);
  void push(std::string token, DetokenizedText& out);
  void skip(DetokenizedText& out);  // a token without text, which the decoder does not see
  void finish(DetokenizedText& out);
  bool has_partial() const;

 private:
  struct State {
    bool first = true;    // nothing has come yet
    std::string held;     // what the stage cannot decide yet
    size_t stripped = 0;  // characters at the beginning
  };
  struct RunToken {
    bool is_byte;
    size_t share;  // if the run is valid: the character that ends with it
  };
  void feed(size_t stage, std::string text);
  void finish_stage(size_t stage);
  void replace_fused(size_t stage, const std::string& text);
  void strip_fused(size_t stage, std::string text);
  void push_byte(size_t stage, char byte);
  void flush_run(size_t stage);
  void settle_run(size_t bytes, DetokenizedText& out);

  const TokenDecoder& decoder_;
  std::vector<State> states_;
  std::string text_;             // made by the current call
  std::vector<RunToken> run_;    // tokens of the run that is not decided
  size_t complete_ = 0;          // bytes of the run that are whole characters
  bool run_is_invalid_ = false;  // its bytes are U+FFFD, one each
  bool joined_run_ = false;      // the current token belongs to it
  size_t run_text_ = 0;          // bytes of text_ that the run has become
};

}  // namespace trireme
