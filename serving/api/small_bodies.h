// Bodies of small responses: /v1/models, /tokenize, /detokenize.
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
  std::string root = {};    // path that was loaded
  std::string parent = {};  // of an adapter: id of its base model; "": null in the body
  int32_t adapter = -1;     // adapter slot; -1: the model alone
};

std::string model_body(const ModelCard& card);
std::string model_list_body(std::span<const ModelCard> cards);

// spelling: returns the UTF-8 text of a token; empty function: the response has no spellings.
std::string tokenize_body(std::span<const int32_t> tokens, int64_t max_model_len,
                          const std::function<std::string(int32_t)>& spelling);
std::string detokenize_body(const std::string& utf8);

}  // namespace trireme
