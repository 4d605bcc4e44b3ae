// Tokenizers of tests/golden/detokenized, and the texts that their own libraries decode from token
// ids.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer_json.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"

namespace trireme::test {

struct Detokenized {
  struct Case {
    std::vector<int32_t> ids;
    std::string text;                   // without control tokens
    std::optional<std::string> marked;  // with control tokens; absent for a SentencePiece model
  };
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<Case> cases;
};

inline constexpr const char* kDetokenized[] = {
    "none",      "byte_level",      "llama2",          "gemma",    "unfused", "stripped",
    "metaspace", "metaspace_never", "metaspace_bytes", "replaced", "words",   "sp_bpe",
    "sp_extra",  "sp_no_prefix",    "sp_plain",        "sp_word",  "sp_char", "sp_suffix"};

inline Detokenized read_detokenized(const std::string& name) {
  using Json = nlohmann::json;
  const Json file =
      read_json_file<Json>(source_folder() + "/tests/golden/detokenized/" + name + ".json");
  Detokenized out;
  if (file.contains("tokenizer")) {
    out.tokenizer = parse_tokenizer_json(file["tokenizer"].dump(), "", name);
  } else {
    const auto hex = file["model"].get<std::string>();
    std::string model;
    for (size_t at = 0; at + 1 < hex.size(); at += 2)
      model.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
    out.tokenizer = parse_sentencepiece(model, name);
  }
  for (const Json& c : file["cases"]) {
    Detokenized::Case one{.ids = c[0], .text = c[1], .marked = {}};
    if (c[2].is_string()) one.marked = c[2].get<std::string>();
    out.cases.push_back(std::move(one));
  }
  return out;
}

}  // namespace trireme::test
