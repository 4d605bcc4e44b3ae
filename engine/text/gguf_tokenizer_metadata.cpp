// gguf_tokenizer_metadata() of gguf_tokenizer.h.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/io/atomic_file.h"
#include "engine/io/input_file.h"
#include "engine/text/chat_template_sources.h"
#include "engine/text/gguf_pre_tokenizers.h"
#include "engine/text/gguf_roles.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/prefix_space.h"
#include "engine/text/sentencepiece_proto.h"
#include "engine/text/tokenizer_config.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;
using Type = SentencePieces::Type;

constexpr int64_t kMaxTokenizerBytes = 256 << 20;

struct WrittenTokens {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
};

// File of a tokenizer, and the content to write from the files next to it.
struct TokenizerSource {
  explicit TokenizerSource(const std::string& file)
      : path(file),
        config(tokenizer_config_beside(fs::path(file).parent_path().string())),
        tokenizer(load_tokenizer(file)) {}
  std::string path, config;
  std::unique_ptr<Tokenizer> tokenizer;

  TokenizerConfig settings() const { return parse_tokenizer_config(config, path); }
  void add_roles(GgufMetadata& out) const { add_gguf_roles(*tokenizer, config, path, out); }
};

// Keys of both kinds of tokenizer, with filler tokens up to the rows of the model's embedding.
GgufMetadata metadata_of(WrittenTokens words, int64_t vocab_size) {
  for (int64_t id = std::ssize(words.tokens); id < vocab_size; ++id) {
    words.tokens.push_back(concat("[PAD", id, "]"));
    words.types.push_back(Type::kUnused);
  }
  GgufMetadata out;
  out["tokenizer.ggml.tokens"] = words.tokens;
  out["tokenizer.ggml.token_type"] = words.types;
  return out;
}

// `tokenizer`: has the added tokens, with ids after the model's.
GgufMetadata from_sentencepiece(const TokenizerSource& source, const Tokenizer& tokenizer,
                                int64_t vocab_size) {
  const SentencePieces parts =
      parse_sentence_pieces(read_small_file(source.path, kMaxTokenizerBytes), source.path);
  if (!parts.pairs || parts.maps_characters || parts.removes_extra_spaces) return {};
  WrittenTokens words;
  std::vector<double> scores;
  for (const SentencePieces::Piece& piece : parts.pieces) {
    words.tokens.push_back(piece.text);
    words.types.push_back(piece.type);
    scores.push_back(piece.score);
  }
  for (auto id = static_cast<int32_t>(words.tokens.size()); id < tokenizer.vocab_size(); ++id) {
    words.tokens.push_back(tokenizer.token(id));
    words.types.push_back(tokenizer.is_control(id) ? Type::kControl : Type::kUserDefined);
    scores.push_back(-1000);
  }
  scores.resize(std::max(scores.size(), static_cast<size_t>(vocab_size)));
  GgufMetadata out = metadata_of(std::move(words), vocab_size);
  out["tokenizer.ggml.model"] = "llama";
  out["tokenizer.ggml.scores"] = scores;
  out["tokenizer.ggml.add_space_prefix"] =
      source.settings().adds_prefix_space.value_or(parts.adds_leading_space);
  if (parts.unknown >= 0) out["tokenizer.ggml.unknown_token_id"] = parts.unknown;
  source.add_roles(out);
  return out;
}

// Tokens with llama.cpp's types: special, added or normal.
WrittenTokens words_of_json(const PlainJson& json, const TokenizerSource& source) {
  std::set<int64_t> added;
  for (const PlainJson& token : json.value("added_tokens", PlainJson::array()))
    added.insert(token.value("id", int64_t{-1}));
  for (const AddedToken& token : source.settings().added) added.insert(token.id);
  const Tokenizer& tokenizer = *source.tokenizer;
  WrittenTokens words;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    words.tokens.push_back(tokenizer.token(id));
    words.types.push_back(tokenizer.is_control(id) ? Type::kControl
                          : added.contains(id)     ? Type::kUserDefined
                                                   : Type::kNormal);
  }
  return words;
}

GgufMetadata from_json(const std::string& path, int64_t vocab_size) {
  const TokenizerSource source(path);
  const std::string text = read_small_file(path, kMaxTokenizerBytes);
  auto json = parse_strict_json<PlainJson>(text, path, kGgufJsonLimits);
  apply_prefix_space(source.settings(), json, path);
  const GgufPreTokenizer* cut = find_gguf_pre_tokenizer(json);
  const PlainJson model = json.value("model", PlainJson());
  GgufMetadata out;
  if (cut == nullptr || !model.contains("merges")) {
    const fs::path other = fs::path(path).parent_path() / "tokenizer.model";
    if (is_input_file(other.string()))
      out = from_sentencepiece(TokenizerSource(other.string()), *source.tokenizer, vocab_size);
    // If llama.cpp's keys cannot express it: the names of the special tokens.
    if (out.empty()) out = metadata_of(words_of_json(json, source), vocab_size);
  } else {
    std::vector<std::string> merges;
    for (const PlainJson& pair : model["merges"])
      merges.push_back(pair.is_string() ? pair.get<std::string>()
                                        : concat(pair.at(0).get<std::string>(), " ",
                                                 pair.at(1).get<std::string>()));
    out = metadata_of(words_of_json(json, source), vocab_size);
    out["tokenizer.ggml.model"] = "gpt2";
    out["tokenizer.ggml.pre"] = cut->name;
    out["tokenizer.ggml.merges"] = merges;
  }
  source.add_roles(out);
  out[kGgufWhole] = text;
  return out;
}

}  // namespace

GgufMetadata gguf_tokenizer_metadata(const std::string& spec, int64_t vocab_size) {
  GgufMetadata out;
  if (spec.ends_with(".gguf")) {
    const GgufFile file(spec);
    for (const auto& [key, value] : file.metadata())
      if (key.starts_with("tokenizer.")) out[key] = value;
    return out;
  }
  try {
    if (spec.ends_with(".model")) {
      const TokenizerSource source(spec);
      out = from_sentencepiece(source, *source.tokenizer, vocab_size);
    }
    if (spec.ends_with(".json")) out = from_json(spec, vocab_size);
  } catch (const PlainJson::exception& e) {
    fail_input(spec, " does not have the form of a tokenizer.json: ", e.what());
  }
  if (!out.empty()) set_gguf_chat_templates(find_chat_templates(spec), out);
  return out;
}

void set_gguf_chat_templates(const ChatTemplateSources& sources, GgufMetadata& metadata) {
  if (sources.empty()) return;
  const std::string named = concat(kGgufChatTemplate, "."), list = concat(kGgufChatTemplate, "s");
  std::erase_if(metadata, [&](const auto& word) {
    return word.first == kGgufChatTemplate || word.first == list || word.first.starts_with(named);
  });
  std::vector<std::string> names;
  for (const auto& [name, source] : sources) {
    if (name == kDefaultChatTemplate) {
      metadata[kGgufChatTemplate] = source;
      continue;
    }
    names.push_back(name);
    for (char& c : names.back())  // like llama.cpp's converter
      if ((c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')) c = '_';
    metadata[named + names.back()] = source;
  }
  if (!names.empty()) metadata[list] = std::move(names);
}

}  // namespace trireme
