#include "engine/text/gguf_tokenizer.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "engine/core/utf8.h"
#include "engine/io/strict_json.h"
#include "engine/text/gguf_pre_tokenizers.h"
#include "engine/text/gguf_roles.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/sentencepiece_proto.h"
#include "engine/text/tokenizer_config.h"
#include "engine/text/tokenizer_json.h"
#include "engine/text/tokenizer_keys.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

using PlainJson = nlohmann::json;
using Type = SentencePieces::Type;

const GgufPreTokenizer& cut_in(const GgufFile& file) {
  const auto name = file.get<std::string>("tokenizer.ggml.pre").value_or("gpt-2");
  if (const GgufPreTokenizer* cut = find_gguf_pre_tokenizer(name)) return *cut;
  fail_input(file.path(), ": the pre-tokenizer \"", name,
             "\" (tokenizer.ggml.pre) is not supported; give the model's tokenizer.json");
}

// Tokens in the byte alphabet must be valid text.
void check_texts(const GgufFile& file, const char* key, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i)
    if (find_invalid_utf8(texts[i]) != texts[i].size())
      fail_input(file.path(), ": ", key, "[", i, "] is not UTF-8");
}

bool adds_bos(const GgufFile& file, bool fallback) {
  return file.get<bool>("tokenizer.ggml.add_bos_token").value_or(fallback);
}
bool adds_eos(const GgufFile& file, bool fallback = false) {
  return file.get<bool>("tokenizer.ggml.add_eos_token").value_or(fallback);
}

// Post-processor of a tokenizer.json for the tokens around a text; null for none.
PlainJson around_of(const GgufTokens& tokens, bool bos, bool eos) {
  PlainJson single = PlainJson::array(), specials = PlainJson::object();
  const auto add = [&](int64_t id) {
    const std::string& name = tokens.name(id);
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    specials[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  if (bos && tokens.bos() >= 0) add(tokens.bos());
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (eos && tokens.eos() >= 0) add(tokens.eos());
  if (specials.empty()) return {};
  PlainJson pair = single;
  for (PlainJson part : single) {
    for (auto& [kind, of] : part.items()) of["type_id"] = 1;
    if (part.contains("Sequence")) part["Sequence"]["id"] = "B";
    pair.push_back(part);
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", specials}};
}

PlainJson added_token(size_t id, const std::string& token, bool special) {
  return {{"id", id},
          {"content", token},
          {"special", special},
          {"normalized", false},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false}};
}

// tokenizer.json equivalent to llama.cpp's keys.
PlainJson byte_level(const GgufFile& file, const GgufTokens& tokens) {
  const GgufPreTokenizer& cut = cut_in(file);
  check_texts(file, "tokenizer.ggml.tokens", tokens.tokens);
  PlainJson vocabulary = PlainJson::object(), added = PlainJson::array();
  for (size_t id = 0; id < tokens.tokens.size(); ++id) {
    const std::string& token = tokens.tokens[id];
    const int64_t type = tokens.types[id];
    if (type == Type::kControl || type == Type::kUserDefined)
      added.push_back(added_token(id, token, type == Type::kControl));
    if (type == Type::kUnused && vocabulary.contains(token)) continue;
    vocabulary[token] = id;
  }
  const auto merges = file.get<std::vector<std::string>>("tokenizer.ggml.merges")
                          .value_or(std::vector<std::string>());
  check_texts(file, "tokenizer.ggml.merges", merges);
  PlainJson json = {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added},
                    {"normalizer", cut.composes ? PlainJson{{"type", "NFC"}} : PlainJson()},
                    {"pre_tokenizer", pre_tokenizer_json(cut)},
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
  json["post_processor"] = around_of(tokens, adds_bos(file, cut.adds_bos), adds_eos(file));
  return json;
}

// tokenizer.huggingface.json; if the file's flags differ in the tokens around a text, with those of
// the flags.
std::string whole_json(const GgufFile& file, const GgufTokens& tokens, const std::string& config,
                       std::unique_ptr<Tokenizer>& read) {
  std::string whole = file.get<std::string>(kGgufWhole).value_or("");
  read = parse_tokenizer_json(whole, config, file.path());
  const TokensAround has = tokens_around(*read);
  const bool bos = adds_bos(file, has.bos) && tokens.bos() >= 0;
  const bool eos = adds_eos(file, has.eos) && tokens.eos() >= 0;
  if (bos == has.bos && eos == has.eos) return whole;
  auto json = parse_strict_json<PlainJson>(whole, file.path(), kGgufJsonLimits);
  json["post_processor"] = around_of(tokens, bos, eos);
  whole = json.dump();
  read = parse_tokenizer_json(whole, config, file.path());
  return whole;
}

struct SentencePieceFile {
  std::string model;
  SentencePieceSettings settings;
};

// Equivalent SentencePiece model.
SentencePieceFile sentencepiece(const GgufFile& file, const GgufTokens& tokens,
                                const TokenizerConfig& config) {
  const auto scores =
      file.get<std::vector<double>>("tokenizer.ggml.scores").value_or(std::vector<double>());
  if (scores.size() != tokens.tokens.size())
    fail_input(file.path(), ": ", scores.size(), " scores for ", tokens.tokens.size(), " tokens");
  SentencePieces parts;
  // User-defined tokens are split off a text first, and the text after each is encoded separately,
  // as in llama.cpp.
  SentencePieceSettings settings = sentencepiece_settings(config);
  settings.adds_bos = adds_bos(file, true);
  settings.adds_eos = adds_eos(file);
  settings.bos = settings.eos = std::nullopt;  // the model's own, which are the file's
  settings.adds_leading_space = std::nullopt;
  std::set<int32_t> listed;
  for (const AddedToken& t : settings.added) listed.insert(t.id);
  for (size_t i = 0; i < scores.size(); ++i) {
    parts.pieces.push_back({tokens.tokens[i], scores[i], tokens.types[i]});
    if (tokens.types[i] == Type::kUnknown) parts.unknown = static_cast<int64_t>(i);
    const auto id = static_cast<int32_t>(i);
    if (tokens.types[i] == Type::kUserDefined && !listed.contains(id))
      settings.added.push_back({.id = id, .content = tokens.tokens[i]});
  }
  parts.bos = tokens.bos();
  parts.eos = tokens.eos();
  parts.adds_leading_space = file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
  return {serialize_sentence_pieces(parts), std::move(settings)};
}

std::string model_of(const GgufFile& file) {
  const auto model = file.get<std::string>("tokenizer.ggml.model");
  if (!model.has_value()) fail_input(file.path(), ": has no tokenizer; give --tokenizer");
  if (*model == "gpt2" || *model == "llama") return *model;
  fail_input(file.path(), ": the tokenizer model \"", *model,
             "\" is not supported; supported: gpt2, llama; or give the model's tokenizer.json");
}

// Adds the settings of a tokenizer.model to tokenizer_config.json.
void add_pieces_config(const GgufFile& file, const GgufTokens& tokens,
                       const SentencePieceSettings& settings, PlainJson& config) {
  if (!config.contains("legacy") || config["legacy"].is_null()) config["legacy"] = true;
  config["tokenizer_class"] = "LlamaTokenizer";
  config["add_bos_token"] = settings.adds_bos;
  config["add_eos_token"] = settings.adds_eos;
  config["add_prefix_space"] = file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
  PlainJson& added = config["added_tokens_decoder"];
  if (added.is_null()) added = PlainJson::object();
  for (size_t id = 0; id < tokens.tokens.size(); ++id) {
    const int64_t type = tokens.types[id];
    const std::string key = std::to_string(id);
    if ((type != Type::kControl && type != Type::kUnknown && type != Type::kUserDefined) ||
        added.contains(key))
      continue;
    PlainJson token = added_token(id, tokens.tokens[id], type != Type::kUserDefined);
    token.erase("id");
    added[key] = std::move(token);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::string& path) {
  const GgufFile file(path);
  check_gguf_tokenizer_keys(file);
  const bool has_whole = file.metadata().contains(kGgufWhole);
  const std::string model = has_whole ? "" : model_of(file);
  const GgufTokens tokens = gguf_tokens(file);
  const std::string config = gguf_tokenizer_config(file, tokens).dump();
  if (has_whole) {
    std::unique_ptr<Tokenizer> read;
    (void)whole_json(file, tokens, config, read);
    return read;
  }
  if (model == "gpt2") return parse_tokenizer_json(byte_level(file, tokens).dump(), config, path);
  const SentencePieceFile pieces =
      sentencepiece(file, tokens, parse_tokenizer_config(config, path));
  return parse_sentencepiece(pieces.model, path, pieces.settings);
}

GgufTokenizerFiles gguf_tokenizer_files(const std::string& path) {
  (void)load_gguf_tokenizer(path);  // throws if invalid
  const GgufFile file(path);
  const GgufTokens tokens = gguf_tokens(file);
  PlainJson config = {{"clean_up_tokenization_spaces", false},
                      {"tokenizer_class", "PreTrainedTokenizerFast"}};
  config.update(gguf_tokenizer_config(file, tokens));
  GgufTokenizerFiles out;
  if (file.metadata().contains(kGgufWhole)) {
    std::unique_ptr<Tokenizer> read;
    out.emplace_back("tokenizer.json", whole_json(file, tokens, config.dump(), read));
  } else if (model_of(file) == "gpt2") {
    out.emplace_back("tokenizer.json", byte_level(file, tokens).dump());
  } else {
    SentencePieceFile pieces =
        sentencepiece(file, tokens, parse_tokenizer_config(config.dump(), path));
    add_pieces_config(file, tokens, pieces.settings, config);
    out.emplace_back("tokenizer.model", std::move(pieces.model));
  }
  const ChatTemplateSources templates = gguf_chat_templates(path);
  const bool as_files = are_names_of_files(templates);
  if (!as_files) config["chat_template"] = chat_templates_to_list(templates);
  out.emplace_back("tokenizer_config.json", config.dump(2) + "\n");
  if (as_files)
    for (const auto& [name, source] : templates) out.emplace_back(chat_template_file(name), source);
  return out;
}

}  // namespace trireme
