// The pre-tokenizers of a tokenizer.json: a text cut into words, across which no token reaches.
//
// ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, Metaspace, Punctuation and Sequence.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

// Words as ranges of bytes of a text, which a pre-tokenizer may have changed.
struct Words {
  struct Range {
    size_t begin, end;
  };
  std::string text;
  std::vector<Range> ranges;  // none is empty
  bool first = false;         // the text begins where the whole input does
};

class PreTokenizer {
 public:
  // `json`: the object "pre_tokenizer", or null for none. `what` begins messages: the file.
  PreTokenizer(const nlohmann::json& json, const std::string& what);
  void apply(Words& words) const;
  // A ByteLevel is among them: tokens are spelled in its alphabet, one character for each byte.
  bool byte_level() const { return byte_level_; }
  // Its words are the whole text, nothing of which is left out or becomes shorter.
  bool keeps_text() const { return keeps_text_; }

 private:
  void add(const nlohmann::json& json, const std::string& what, int depth);
  void add_byte_level(const nlohmann::json& json, const std::string& what);
  void add_metaspace(const nlohmann::json& json, const std::string& what);
  std::vector<std::function<void(Words&)>> steps_;
  bool byte_level_ = false, keeps_text_ = true;
};

}  // namespace trireme
