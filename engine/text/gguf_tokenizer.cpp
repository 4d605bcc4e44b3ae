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
constexpr JsonLimits kGgufJsonLimits = {.depth = 32, .keys_per_object = size_t{1} << 22};

// How llama.cpp calls the ways to cut words: an expression, after which the alphabet of bytes is
// used.
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
struct GgufWords {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  int64_t bos = -1, eos = -1;
};

GgufWords words_of(const GgufFile& file) {
  GgufWords words;
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

Json named(const GgufWords& words, int64_t id) {
  return id < 0 ? Json() : Json(words.tokens[static_cast<size_t>(id)]);
}

std::string config_of(const GgufWords& words) {
  return Json{{"bos_token", named(words, words.bos)}, {"eos_token", named(words, words.eos)}}
      .dump();
}

Json pre_tokenizer_of(const Cut& cut) {
  const bool own = cut.expression[0] == '\0';
  Json bytes = {{"type", "ByteLevel"},
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

bool adds_bos(const GgufFile& file, bool fallback) {
  return file.get<bool>("tokenizer.ggml.add_bos_token").value_or(fallback);
}
bool adds_eos(const GgufFile& file) {
  return file.get<bool>("tokenizer.ggml.add_eos_token").value_or(false);
}

// What stands around a text, as a post-processor of a tokenizer.json; null for nothing.
Json around_of(const GgufWords& words, bool bos, bool eos) {
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](int64_t id) {
    single.push_back({{"SpecialToken", {{"id", named(words, id)}, {"type_id", 0}}}});
    tokens[words.tokens[static_cast<size_t>(id)]] = {
        {"id", named(words, id)}, {"ids", {id}}, {"tokens", {named(words, id)}}};
  };
  if (bos && words.bos >= 0) add(words.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (eos && words.eos >= 0) add(words.eos);
  if (tokens.empty()) return {};
  Json pair = single;
  for (Json part : single) {
    for (auto& [kind, of] : part.items()) of["type_id"] = 1;
    if (part.contains("Sequence")) part["Sequence"]["id"] = "B";
    pair.push_back(part);
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", tokens}};
}

Json added_token(size_t id, const std::string& token, bool special) {
  return {{"id", id},
          {"content", token},
          {"special", special},
          {"normalized", false},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false}};
}

// The tokenizer.json that says the same.
Json byte_level(const GgufFile& file, const GgufWords& words) {
  const Cut& cut = cut_of(file);
  check_texts(file, "tokenizer.ggml.tokens", words.tokens);
  Json vocabulary = Json::object(), added = Json::array();
  for (size_t id = 0; id < words.tokens.size(); ++id) {
    const std::string& token = words.tokens[id];
    const int64_t type = words.types[id];
    if (type == Type::kControl || type == Type::kUserDefined)
      added.push_back(added_token(id, token, type == Type::kControl));
    if (type == Type::kUnused && vocabulary.contains(token)) continue;
    vocabulary[token] = id;
  }
  const auto merges = file.get<std::vector<std::string>>("tokenizer.ggml.merges")
                          .value_or(std::vector<std::string>());
  check_texts(file, "tokenizer.ggml.merges", merges);
  Json json = {{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", added},
               {"normalizer", cut.composes ? Json{{"type", "NFC"}} : Json()},
               {"pre_tokenizer", pre_tokenizer_of(cut)},
               {"decoder",
                {{"type", "ByteLevel"},
                 {"add_prefix_space", false},
                 {"trim_offsets", true},
                 {"use_regex", true}}},
               {"model",
                {{"type", "BPE"},
                 {"dropout", nullptr},
                 {"unk_token", nullptr},
                 {"continuing_subword_prefix", nullptr},
                 {"end_of_word_suffix", nullptr},
                 {"fuse_unk", false},
                 {"byte_fallback", false},
                 {"vocab", vocabulary},
                 {"merges", merges},
                 {"ignore_merges", cut.keeps_words}}}};
  json["post_processor"] = around_of(words, adds_bos(file, cut.adds_bos), adds_eos(file));
  return json;
}

struct SentencePieceFile {
  std::string model;
  SentencePieceSettings settings;
};

// The model that says the same.
SentencePieceFile sentencepiece(const GgufFile& file, const GgufWords& words) {
  const auto scores =
      file.get<std::vector<double>>("tokenizer.ggml.scores").value_or(std::vector<double>());
  if (scores.size() != words.tokens.size())
    fail_input(file.path(), ": ", scores.size(), " scores for ", words.tokens.size(), " tokens");
  SentencePieces parts;
  // Words of its own kind are cut out of a text first, and what follows begins anew, as in
  // llama.cpp.
  SentencePieceSettings settings{.adds_bos = adds_bos(file, true), .adds_eos = adds_eos(file)};
  for (size_t i = 0; i < scores.size(); ++i) {
    parts.pieces.push_back({words.tokens[i], scores[i], words.types[i]});
    if (words.types[i] == Type::kUnknown) parts.unknown = static_cast<int64_t>(i);
    if (words.types[i] == Type::kUserDefined)
      settings.added.push_back({.id = static_cast<int32_t>(i), .content = words.tokens[i]});
  }
  parts.bos = words.bos;
  parts.eos = words.eos;
  parts.adds_leading_space = file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
  return {put_together(parts), std::move(settings)};
}

// What both kinds write, tokens filled up to the rows of the model's table.
GgufMetadata metadata_of(const char* model, const Tokenizer& tokenizer, GgufWords words,
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
  const bool bos = !around.empty() && around.front() == tokenizer.bos_id();
  out["tokenizer.ggml.add_bos_token"] = bos;
  if (around.size() > (bos ? 1 : 0) && around.back() == tokenizer.eod_id())
    out["tokenizer.ggml.add_eos_token"] = true;
  return out;
}

GgufMetadata from_sentencepiece(const std::string& path, int64_t vocab_size) {
  const SentencePieces parts = take_apart(read_small_file(path, kMaxTokenizerBytes), path);
  if (!parts.pairs || parts.maps_characters || parts.removes_extra_spaces) return {};
  GgufWords words;
  std::vector<double> scores;
  for (const SentencePieces::Piece& piece : parts.pieces) {
    words.tokens.push_back(piece.text);
    words.types.push_back(piece.type);
    scores.push_back(piece.score);
  }
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(path);
  for (auto id = static_cast<int32_t>(words.tokens.size()); id < tokenizer->vocab_size(); ++id) {
    words.tokens.push_back(tokenizer->token(id));
    words.types.push_back(tokenizer->is_control(id) ? Type::kControl : Type::kUserDefined);
    scores.push_back(-1000);
  }
  scores.resize(std::max(scores.size(), static_cast<size_t>(vocab_size)));
  GgufMetadata out = metadata_of("llama", *tokenizer, std::move(words), vocab_size);
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
  const auto json = parse_strict_json<Json>(text, path, kGgufJsonLimits);
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
  GgufWords words;
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
  if (*model == "gpt2") {
    const GgufWords words = words_of(file);
    return parse_tokenizer_json(byte_level(file, words).dump(), config_of(words), path);
  }
  if (*model == "llama") {
    const SentencePieceFile pieces = sentencepiece(file, words_of(file));
    return parse_sentencepiece(pieces.model, path, pieces.settings);
  }
  fail_input(path, ": a tokenizer of kind \"", *model,
             "\" is not known; gpt2 and llama are, or give the model's tokenizer.json");
}

std::string gguf_chat_template(const std::string& path) {
  return GgufFile(path).get<std::string>(kGgufChatTemplate).value_or("");
}

GgufTokenizerFiles gguf_tokenizer_files(const std::string& path) {
  (void)load_gguf_tokenizer(path);  // is understood
  const GgufFile file(path);
  GgufTokenizerFiles out;
  const auto whole = file.get<std::string>(kWhole);
  const auto model = file.get<std::string>("tokenizer.ggml.model");
  Json config = {{"clean_up_tokenization_spaces", false},
                 {"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (model.has_value()) config.update(Json::parse(config_of(words_of(file))));
  if (whole.has_value()) {
    out.emplace_back("tokenizer.json", *whole);
  } else if (model.value_or("") == "gpt2") {
    out.emplace_back("tokenizer.json", byte_level(file, words_of(file)).dump());
  } else {
    const GgufWords words = words_of(file);
    SentencePieceFile pieces = sentencepiece(file, words);
    out.emplace_back("tokenizer.model", std::move(pieces.model));
    config["tokenizer_class"] = "LlamaTokenizer";
    config["legacy"] = true;
    config["add_bos_token"] = pieces.settings.adds_bos;
    config["add_eos_token"] = pieces.settings.adds_eos;
    config["add_prefix_space"] = file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
    Json added = Json::object();
    for (size_t id = 0; id < words.tokens.size(); ++id)
      if (const int64_t type = words.types[id];
          type == Type::kControl || type == Type::kUnknown || type == Type::kUserDefined) {
        Json token = added_token(id, words.tokens[id], type != Type::kUserDefined);
        token.erase("id");
        added[std::to_string(id)] = std::move(token);
      }
    config["added_tokens_decoder"] = std::move(added);
  }
  out.emplace_back("tokenizer_config.json", config.dump(2) + "\n");
  if (const auto chat = file.get<std::string>(kGgufChatTemplate))
    out.emplace_back("chat_template.jinja", *chat);
  return out;
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
  if (const std::string chat = find_chat_template(spec); !out.empty() && !chat.empty())
    out[kGgufChatTemplate] = chat;
  if (!spec.ends_with(".gguf")) return out;
  const GgufFile file(spec);
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with("tokenizer.")) out[key] = value;
  return out;
}

}  // namespace trireme
