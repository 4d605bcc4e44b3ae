// Decoder of a tokenizer.json: stages that turn tokens into text, as in the tokenizers library.
//
// ByteLevel, Metaspace, ByteFallback, Fuse, Replace (of a string), Strip and Sequence; without a
// decoder tokens are joined with spaces. A stage receives the tokens of the previous one, and after
// a Fuse or a ByteLevel the text as a single token.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/detokenizer.h"

namespace trireme {

class TokenDecoder {
 public:
  // `json`: the object "decoder", or null. `what` is the prefix of messages: the file.
  TokenDecoder(const nlohmann::json& json, const std::string& what);
  // Returns the bytes that a token appends to earlier text; a byte token appends its byte.
  std::string bytes(const std::string& token) const;
  // Returns whether bytes() of a token may be longer than the token. bytes() throws InputError for
  // more than 1 MiB.
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
    bool drops_first = false;  // Metaspace: removes the spaces of the first token
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

// Decodes tokens one at a time. The decoder must outlive it.
class TokenDecoder::Stream {
 public:
  // at_start: no token precedes the text.
  Stream(const TokenDecoder& decoder, bool at_start);
  void push(std::string token, DetokenizedText& out);
  void skip(DetokenizedText& out);  // a token without text; stages do not see it
  void finish(DetokenizedText& out);
  bool has_partial() const;

 private:
  struct State {
    bool first = true;    // no token so far
    std::string held;     // pending input, whose output depends on later tokens
    size_t stripped = 0;  // characters removed at the start
  };
  struct RunToken {
    bool is_byte;
    size_t share;  // if the run is valid: bytes of the character that ends with this token
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
  std::string text_;             // produced by the current call
  std::vector<RunToken> run_;    // tokens of the pending run of byte tokens
  size_t complete_ = 0;          // bytes of the run that form complete characters
  bool run_is_invalid_ = false;  // each of its bytes becomes a U+FFFD
  bool joined_run_ = false;      // the current token belongs to the run
  size_t run_text_ = 0;          // bytes of text_ produced by the run
};

}  // namespace trireme
