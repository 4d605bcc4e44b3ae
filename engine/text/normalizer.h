// Normalizers of a tokenizer.json: change a text before it is split into words.
//
// NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace and Sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

class Normalizer {
 public:
  // `json`: the object "normalizer", or null for none. `what` is the prefix of messages: the file.
  Normalizer(const nlohmann::json& json, const std::string& what);
  // InputError if the text becomes longer than 64 times its bytes plus 4096.
  std::string apply(std::string text) const;
  bool empty() const { return steps_.empty(); }
  // Maximum number of bytes that are normalized to one byte; 0: no bound is known.
  int64_t max_shrinking() const { return shrinking_; }

 private:
  void add(const nlohmann::json& json, const std::string& what, int depth);
  std::vector<std::function<std::string(std::string)>> steps_;
  int64_t shrinking_ = 1;
};

}  // namespace trireme
