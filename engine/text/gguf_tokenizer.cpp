#include "engine/text/gguf_tokenizer.h"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "engine/core/utf8.h"
#include "engine/io/strict_json.h"
#include "engine/text/chat_template.h"
#include "engine/text/json_fields.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/sentencepiece_proto.h"
#include "engine/text/tokenizer_json.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using Type = SentencePieces::Type;
constexpr const char* kWhole = "tokenizer.huggingface.json";
constexpr int64_t kMaxTokenizerBytes = 256 << 20;
constexpr JsonLimits kLimits = {.depth = 32, .keys_per_object = size_t{1} << 22};

// How llama.cpp calls the ways to cut words: an expression, after which the alphabet of bytes is used.
struct Cut {
  const char* name;
  const char* expression;  // "": ByteLevel's own
  bool composes;           // NFC before
  bool keeps_words;        // a word that is a token is it, whatever the merges
  bool adds_bos;           // where the file does not say
};
constexpr Cut kCuts[] = {
    {"gpt-2", "", false, false, false},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, true, true},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, false, false}};

// What both kinds of tokenizer say.
struct Words {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  int64_t bos = -1, eos = -1;
};

Words words_of(const GgufFile& file) {
  Words words;
  words.tokens = file.get<std::vector<std::string>>("tokenizer.ggml.tokens").value_or(words.tokens);
  if (words.tokens.empty() || std::ssize(words.tokens) > kMaxVocabulary)
    fail_input(file.path(), ": tokenizer.ggml.tokens holds ", words.tokens.size(), " tokens");
  words.types = file.get<std::vector<int64_t>>("tokenizer.ggml.token_type")
                    .value_or(std::vector<int64_t>(words.tokens.size(), Type::kNormal));
  if (words.types.size() != words.tokens.size())
    fail_input(file.path(), ": ", words.types.size(), " types for ", words.tokens.size(),
               " tokens");
  const auto id = [&](const char* key) {
    const int64_t value = file.get<int64_t>(key).value_or(-1);
    if (value >= std::ssize(words.tokens))
      fail_input(file.path(), ": ", key, " is ", value, ", of ", words.tokens.size(), " tokens");
    return std::max<int64_t>(-1, value);
  };
  words.bos = id("tokenizer.ggml.bos_token_id");
  words.eos = id("tokenizer.ggml.eos_token_id");
  return words;
}

Json named(const Words& words, int64_t id) {
  return id < 0 ? Json() : Json(words.tokens[static_cast<size_t>(id)]);
}

std::string config_of(const Words& words) {
  return Json{{"bos_token", named(words, words.bos)}, {"eos_token", named(words, words.eos)}}
      .dump();
}

Json pre_tokenizer_of(const Cut& cut) {
  const bool own = cut.expression[0] == '\0';
  Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", own}};
  if (own) return bytes;
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", cut.expression}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            bytes}}};
}

const Cut& cut_of(const GgufFile& file) {
  const auto name = file.get<std::string>("tokenizer.ggml.pre").value_or("gpt-2");
  for (const Cut& cut : kCuts)
    if (name == cut.name) return cut;
  fail_input(file.path(), ": its tokenizer cuts words as \"", name,
             "\" (tokenizer.ggml.pre), which is not known; give the model's tokenizer.json");
}

// Of the alphabet of bytes every token is text.
void check_texts(const GgufFile& file, const char* key, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i)
    if (find_invalid_utf8(texts[i]) != texts[i].size())
      fail_input(file.path(), ": ", key, "[", i, "] is no UTF-8");
}

// The tokenizer.json that says the same.
std::unique_ptr<Tokenizer> byte_level(const GgufFile& file, const Words& words) {
  const Cut& cut = cut_of(file);
  check_texts(file, "tokenizer.ggml.tokens", words.tokens);
  Json vocabulary = Json::object(), added = Json::array();
  for (size_t id = 0; id < words.tokens.size(); ++id) {
    const std::string& token = words.tokens[id];
    const int64_t type = words.types[id];
    if (type == Type::kControl || type == Type::kUserDefined)
      added.push_back({{"id", id},
                       {"content", token},
                       {"special", type == Type::kControl},
                       {"normalized", false},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false}});
    if (type == Type::kUnused && vocabulary.contains(token)) continue;
    vocabulary[token] = id;
  }
  const auto merges = file.get<std::vector<std::string>>("tokenizer.ggml.merges")
                          .value_or(std::vector<std::string>());
  check_texts(file, "tokenizer.ggml.merges", merges);
  Json json = {{"added_tokens", added},
               {"normalizer", cut.composes ? Json{{"type", "NFC"}} : Json()},
               {"pre_tokenizer", pre_tokenizer_of(cut)},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model",
                {{"type", "BPE"},
                 {"vocab", vocabulary},
                 {"merges", merges},
                 {"ignore_merges", cut.keeps_words}}}};
  if (file.get<bool>("tokenizer.ggml.add_bos_token").value_or(cut.adds_bos) && words.bos >= 0) {
    const std::string& bos = words.tokens[static_cast<size_t>(words.bos)];
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", bos}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{bos, {{"ids", {words.bos}}}}}}};
  }
  return parse_tokenizer_json(json.dump(), config_of(words), file.path());
}

std::unique_ptr<Tokenizer> sentencepiece(const GgufFile& file, const Words& words) {
  const auto scores =
      file.get<std::vector<double>>("tokenizer.ggml.scores").value_or(std::vector<double>());
  if (scores.size() != words.tokens.size())
    fail_input(file.path(), ": ", scores.size(), " scores for ", words.tokens.size(), " tokens");
  SentencePieces parts;
  for (size_t i = 0; i < scores.size(); ++i) {
    parts.pieces.push_back({words.tokens[i], scores[i], words.types[i]});
    if (words.types[i] == Type::kUnknown) parts.unknown = static_cast<int64_t>(i);
  }
  parts.bos = words.bos;
  parts.eos = words.eos;
  parts.adds_leading_space = file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
  return parse_sentencepiece(put_together(parts), file.path());
}

// What both kinds write, tokens filled up to the rows of the model's table.
GgufMetadata metadata_of(const char* model, const Tokenizer& tokenizer, Words words,
                         int64_t vocab_size) {
  for (int64_t id = std::ssize(words.tokens); id < vocab_size; ++id) {
    words.tokens.push_back(concat("[PAD", id, "]"));
    words.types.push_back(Type::kUnused);
  }
  GgufMetadata out;
  out["tokenizer.ggml.model"] = model;
  out["tokenizer.ggml.tokens"] = words.tokens;
  out["tokenizer.ggml.token_type"] = words.types;
  if (tokenizer.bos_id() >= 0) out["tokenizer.ggml.bos_token_id"] = int64_t{tokenizer.bos_id()};
  if (tokenizer.eod_id() >= 0) out["tokenizer.ggml.eos_token_id"] = int64_t{tokenizer.eod_id()};
  const std::vector<int32_t> around = tokenizer.encode("", {.add_special = true});
  out["tokenizer.ggml.add_bos_token"] =
      !around.empty() && around.front() == tokenizer.bos_id() && tokenizer.bos_id() >= 0;
  return out;
}

GgufMetadata from_sentencepiece(const std::string& path, int64_t vocab_size) {
  const SentencePieces parts = take_apart(read_small_file(path, kMaxTokenizerBytes), path);
  if (!parts.pairs || parts.maps_characters || parts.removes_extra_spaces) return {};
  Words words;
  std::vector<double> scores;
  for (const SentencePieces::Piece& piece : parts.pieces) {
    words.tokens.push_back(piece.text);
    words.types.push_back(piece.type);
    scores.push_back(piece.score);
  }
  scores.resize(std::max(scores.size(), static_cast<size_t>(vocab_size)));
  GgufMetadata out = metadata_of("llama", *load_tokenizer(path), std::move(words), vocab_size);
  out["tokenizer.ggml.scores"] = scores;
  out["tokenizer.ggml.add_space_prefix"] = parts.adds_leading_space;
  if (parts.unknown >= 0) out["tokenizer.ggml.unknown_token_id"] = parts.unknown;
  return out;
}

// The cut that a tokenizer.json has; nullptr: another.
const Cut* cut_of(const Json& json) {
  const Json normalizer = json.value("normalizer", Json());
  const bool composes = normalizer.is_object() && normalizer.value("type", "") == "NFC";
  if (!composes && !normalizer.is_null()) return nullptr;
  const Json pre = json.value("pre_tokenizer", Json());
  if (!pre.is_object()) return nullptr;
  const bool keeps_words = json.value("model", Json::object()).value("ignore_merges", false);
  for (const Cut& cut : kCuts) {
    if (cut.composes != composes || cut.keeps_words != keeps_words) continue;
    const Json wanted = pre_tokenizer_of(cut);
    if (wanted["type"] != pre.value("type", "")) continue;
    if (wanted["type"] == "ByteLevel" && pre.value("use_regex", true) &&
        !pre.value("add_prefix_space", true))
      return &cut;
    if (wanted["type"] == "Sequence" && pre.value("pretokenizers", Json()).size() == 2 &&
        pre["pretokenizers"][0] == wanted["pretokenizers"][0] &&
        !pre["pretokenizers"][1].value("use_regex", true))
      return &cut;
  }
  return nullptr;
}

GgufMetadata from_json(const std::string& path, int64_t vocab_size) {
  const std::string text = read_small_file(path, kMaxTokenizerBytes);
  const auto json = parse_strict_json<Json>(text, path, kLimits);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(path);
  const Cut* cut = cut_of(json);
  const Json model = json.value("model", Json());
  if (cut == nullptr || !model.contains("merges")) {
    const auto other = std::filesystem::path(path).parent_path() / "tokenizer.model";
    GgufMetadata out;
    if (std::filesystem::is_regular_file(other))
      out = from_sentencepiece(other.string(), vocab_size);
    out[kWhole] = text;
    return out;
  }
  Words words;
  std::set<int64_t> special, added;
  for (const Json& token : json.value("added_tokens", Json::array()))
    (token.value("special", false) ? special : added).insert(token.value("id", int64_t{-1}));
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    words.tokens.push_back(tokenizer->token(id));
    words.types.push_back(special.contains(id) ? Type::kControl
                          : added.contains(id) ? Type::kUserDefined
                                               : Type::kNormal);
  }
  std::vector<std::string> merges;
  for (const Json& pair : model["merges"])
    merges.push_back(pair.is_string() ? pair.get<std::string>()
                                      : concat(pair.at(0).get<std::string>(), " ",
                                               pair.at(1).get<std::string>()));
  GgufMetadata out = metadata_of("gpt2", *tokenizer, std::move(words), vocab_size);
  out["tokenizer.ggml.pre"] = cut->name;
  out["tokenizer.ggml.merges"] = merges;
  out[kWhole] = text;
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::string& path) {
  const GgufFile file(path);
  const auto model = file.get<std::string>("tokenizer.ggml.model");
  if (const auto whole = file.get<std::string>(kWhole))
    return parse_tokenizer_json(*whole, model.has_value() ? config_of(words_of(file)) : "", path);
  if (!model.has_value()) fail_input(path, ": has no tokenizer; give --tokenizer");
  if (*model == "gpt2") return byte_level(file, words_of(file));
  if (*model == "llama") return sentencepiece(file, words_of(file));
  fail_input(path, ": a tokenizer of kind \"", *model,
             "\" is not known; gpt2 and llama are, or give the model's tokenizer.json");
}

GgufMetadata gguf_tokenizer_metadata(const std::string& spec, int64_t vocab_size) {
  GgufMetadata out;
  if (spec.ends_with(".model")) out = from_sentencepiece(spec, vocab_size);
  if (spec.ends_with(".json")) {
    try {
      out = from_json(spec, vocab_size);
    } catch (const Json::exception& e) {
      fail_input(spec, " is not written as a tokenizer.json is: ", e.what());
    }
  }
  if (!out.empty())
    if (const std::string chat = find_chat_template(spec); !chat.empty())
      out[kGgufChatTemplate] = chat;
  if (!spec.ends_with(".gguf")) return out;
  const GgufFile file(spec);
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with("tokenizer.")) out[key] = value;
  return out;
}

}  // namespace trireme
