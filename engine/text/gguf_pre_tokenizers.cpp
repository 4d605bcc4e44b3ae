#include "engine/text/gguf_pre_tokenizers.h"

#include <nlohmann/json.hpp>

namespace trireme {
namespace {

using PlainJson = nlohmann::json;

constexpr GgufPreTokenizer kCuts[] = {
    {"gpt-2", "", false, false, false},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, true, true},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, false, false}};

}  // namespace

PlainJson pre_tokenizer_json(const GgufPreTokenizer& cut) {
  const bool own = cut.expression[0] == '\0';
  PlainJson bytes = {{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", own}};
  if (own) return bytes;
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", cut.expression}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            bytes}}};
}

const GgufPreTokenizer* find_gguf_pre_tokenizer(const std::string& name) {
  for (const GgufPreTokenizer& cut : kCuts)
    if (name == cut.name) return &cut;
  return nullptr;
}

const GgufPreTokenizer* find_gguf_pre_tokenizer(const PlainJson& json) {
  const PlainJson normalizer = json.value("normalizer", PlainJson());
  const bool composes = normalizer.is_object() && normalizer.value("type", "") == "NFC";
  if (!composes && !normalizer.is_null()) return nullptr;
  const PlainJson pre = json.value("pre_tokenizer", PlainJson());
  if (!pre.is_object()) return nullptr;
  const bool keeps_words = json.value("model", PlainJson::object()).value("ignore_merges", false);
  for (const GgufPreTokenizer& cut : kCuts) {
    if (cut.composes != composes || cut.keeps_words != keeps_words) continue;
    const PlainJson wanted = pre_tokenizer_json(cut);
    if (wanted["type"] != pre.value("type", "")) continue;
    if (wanted["type"] == "ByteLevel" && pre.value("use_regex", true) &&
        !pre.value("add_prefix_space", true))
      return &cut;
    if (wanted["type"] == "Sequence" && pre.value("pretokenizers", PlainJson()).size() == 2 &&
        pre["pretokenizers"][0] == wanted["pretokenizers"][0] &&
        pre["pretokenizers"][1].value("type", "") == "ByteLevel" &&
        !pre["pretokenizers"][1].value("use_regex", true) &&
        !pre["pretokenizers"][1].value("add_prefix_space", true))
      return &cut;
  }
  return nullptr;
}

}  // namespace trireme
