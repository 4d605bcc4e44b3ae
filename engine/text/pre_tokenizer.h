// Pre-tokenizers of a tokenizer.json: split a text into words, which no token crosses.
//
// ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, Metaspace, Punctuation and Sequence.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

// Words as byte ranges of a text, which a pre-tokenizer may have changed.
struct Words {
  struct Range {
    size_t begin, end;
  };
  std::string text;
  std::vector<Range> ranges;  // none is empty
  bool first = false;         // the text is the start of the whole input
};

class PreTokenizer {
 public:
  // `json`: the object "pre_tokenizer", or null for none. `what` is the prefix of messages: the
  // file.
  PreTokenizer(const nlohmann::json& json, const std::string& what);
  void apply(Words& words) const;
  // Returns whether there is a ByteLevel: tokens are spelled in its alphabet, one character per
  // byte.
  bool byte_level() const { return byte_level_; }
  // Returns whether the words make up the whole text: nothing is dropped or shortened.
  bool keeps_text() const { return keeps_text_; }

 private:
  void add(const nlohmann::json& json, const std::string& what, int depth);
  void add_byte_level(const nlohmann::json& json, const std::string& what);
  void add_metaspace(const nlohmann::json& json, const std::string& what);
  std::vector<std::function<void(Words&)>> steps_;
  bool byte_level_ = false, keeps_text_ = true;
};

}  // namespace trireme
