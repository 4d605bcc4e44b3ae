// Bodies of the small answers: /v1/models, /tokenize, /detokenize.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme {

struct ModelCard {
  std::string id = {};
  int64_t created = 0;  // seconds since 1970
  int64_t max_model_len = 0;
  std::string root = {};    // what was loaded
  std::string parent = {};  // of an adapter: the id of its base
  int32_t adapter = -1;     // its number; -1: the model alone
};

std::string model_body(const ModelCard& card);
std::string model_list_body(std::span<const ModelCard> cards);

// spelling: of a token, in UTF-8; absent: the reply has none.
std::string tokenize_body(std::span<const int32_t> tokens, int64_t max_model_len,
                          const std::function<std::string(int32_t)>& spelling);
std::string detokenize_body(const std::string& utf8);

}  // namespace trireme
