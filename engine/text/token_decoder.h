// The decoders of a tokenizer.json, as what each token stands for: bytes that depend on the token alone, and
// at the beginning of a text some that are left out.
//
// ByteLevel, Metaspace, ByteFallback, Fuse, Replace (of a string), Strip (on the left) and Sequence.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class TokenDecoder {
 public:
  // `json`: the object "decoder", or null for tokens that stand for themselves, with a space between them
  // left to who joins them. `what` begins messages: the file.
  TokenDecoder(const nlohmann::json& json, const std::string& what);
  // The bytes of a token of the model.
  std::string bytes(const std::string& token) const;
  // Of the bytes of the text's first token, without those that are left out.
  std::string_view at_start(std::string_view bytes) const;

 private:
  void add(const nlohmann::json& json, const std::string& what, int depth);
  bool byte_level_ = false, byte_fallback_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  std::string stripped_;  // at the beginning of a text
  size_t most_stripped_ = 0;
};

}  // namespace trireme
