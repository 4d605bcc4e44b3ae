#include "engine/text/gguf_roles.h"

#include <algorithm>

#include "engine/text/json_fields.h"
#include "engine/text/sentencepiece_proto.h"
#include "engine/text/tokenizer_config.h"
#include "engine/text/tokenizer_keys.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

using PlainJson = nlohmann::json;
using Type = SentencePieces::Type;

constexpr const char* kOtherSeparator = "tokenizer.ggml.separator_token_id";

void put_token(GgufTokens& out, const GgufFile& file, int64_t id, const std::string& text,
               int64_t type) {
  if (id < 0 || id >= kMaxVocabulary)
    fail_input(file.path(), ": \"", text.substr(0, 60), "\" of ", kGgufWhole,
               " has an invalid id, expected an integer from 0 to ", kMaxVocabulary - 1);
  const auto place = static_cast<size_t>(id);
  if (place >= out.tokens.size()) {
    out.tokens.resize(place + 1);
    out.types.resize(place + 1, Type::kNormal);
  }
  out.tokens[place] = text;
  out.types[place] = type;
}

// Vocabulary of an embedded tokenizer.json.
void read_whole(const GgufFile& file, GgufTokens& out) {
  const auto text = file.get<std::string>(kGgufWhole).value_or("");
  const auto json = parse_strict_json<PlainJson>(text, file.path(), kGgufJsonLimits);
  const PlainJson model = json.is_object() ? json.value("model", PlainJson()) : PlainJson();
  const PlainJson words = model.is_object() ? model.value("vocab", PlainJson()) : PlainJson();
  int64_t row = 0;
  if (words.is_object())
    for (const auto& [token, id] : words.items())
      put_token(out, file, id.is_number_integer() ? id.get<int64_t>() : -1, token, Type::kNormal);
  if (words.is_array())
    for (const PlainJson& word : words)
      put_token(
          out, file, row++,
          word.is_array() && !word.empty() && word[0].is_string() ? word[0].get<std::string>() : "",
          Type::kNormal);
  const PlainJson added = json.is_object() ? json.value("added_tokens", PlainJson()) : PlainJson();
  for (const PlainJson& token : added.is_array() ? added : PlainJson::array())
    put_token(out, file, field<int64_t>(token, "id", file.path()),
              field<std::string>(token, "content", file.path()),
              field_or(token, "special", file.path(), false) ? Type::kControl : Type::kUserDefined);
}

// JSON value of a key that has no name in HuggingFace's files.
PlainJson scalar_of(const GgufValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return {};
}

bool is_said_elsewhere(const std::string& key) {
  constexpr const char* kSaid[] = {"tokenizer.ggml.model",
                                   "tokenizer.ggml.pre",
                                   kGgufWhole,
                                   "tokenizer.ggml.add_bos_token",
                                   "tokenizer.ggml.add_eos_token",
                                   kGgufTokenizerConfig,
                                   "tokenizer.chat_template",
                                   "tokenizer.ggml.add_space_prefix"};
  return std::ranges::find(kSaid, key) != std::end(kSaid) ||
         key.starts_with("tokenizer.chat_template.") || key.starts_with("tokenizer.trireme.");
}

}  // namespace

GgufTokens gguf_tokens(const GgufFile& file) {
  GgufTokens out;
  if (auto tokens = file.get<std::vector<std::string>>("tokenizer.ggml.tokens"))
    out.tokens = std::move(*tokens);
  else if (file.metadata().contains(kGgufWhole))
    read_whole(file, out);
  if (out.tokens.empty() || std::ssize(out.tokens) > kMaxVocabulary)
    fail_input(file.path(),
               ": the vocabulary has an unsupported size (expected 1 to 2^24 tokens): ",
               out.tokens.size(), " tokens");
  if (out.types.empty())
    out.types = file.get<std::vector<int64_t>>("tokenizer.ggml.token_type")
                    .value_or(std::vector<int64_t>(out.tokens.size(), Type::kNormal));
  if (out.types.size() != out.tokens.size())
    fail_input(file.path(), ": ", out.types.size(), " types for ", out.tokens.size(), " tokens");
  const auto add = [&](const char* key, const char* as) {
    const int64_t value = file.get<int64_t>(key).value_or(-1);
    if (value >= std::ssize(out.tokens))
      fail_input(file.path(), ": ", key, " is ", value, ", outside the vocabulary of ",
                 out.tokens.size(), " tokens");
    if (value >= 0) out.ids[as] = value;
  };
  add(kOtherSeparator, "tokenizer.ggml.seperator_token_id");
  for (const TokenRole& role : kTokenRoles) add(role.gguf, role.gguf);
  return out;
}

PlainJson gguf_tokenizer_config(const GgufFile& file, const GgufTokens& tokens) {
  PlainJson config = PlainJson::object(), kept = PlainJson::object();
  if (const auto own = file.get<std::string>(kGgufTokenizerConfig)) {
    config = parse_strict_json<PlainJson>(*own, concat(file.path(), ": ", kGgufTokenizerConfig),
                                          kGgufJsonLimits);
    if (!config.is_object())
      fail_input(file.path(), ": ", kGgufTokenizerConfig, " is not an object");
  }
  const bool described = std::ranges::any_of(
      file.metadata(), [](const auto& one) { return one.first.starts_with("tokenizer.ggml."); });
  for (const TokenRole& role : kTokenRoles) {
    const int64_t id = tokens.id(role.gguf);
    const std::string_view key = role.gguf;  // as a view: addresses of equal literals may differ
    const bool framing = key == kTokenRoles[0].gguf || key == kTokenRoles[1].gguf;
    if (id < 0) {
      if (framing && described) config[role.name] = nullptr;
      continue;
    }
    const bool plain = tokens.types[static_cast<size_t>(id)] == Type::kNormal;
    if (role.name == nullptr || (plain && !framing)) {
      kept[role.gguf] = id;
      continue;
    }
    const PlainJson named = config.value(role.name, PlainJson());
    if (!named.is_object() || named.value("content", PlainJson()) != tokens.name(id))
      config[role.name] = tokens.name(id);
  }
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with("tokenizer.") || is_said_elsewhere(key)) continue;
    if (tokens.ids.contains(key) || key == kOtherSeparator) continue;
    if (const PlainJson scalar = scalar_of(value); !scalar.is_null()) kept[key] = scalar;
  }
  if (!kept.empty()) config[kConfigGgufMetadata] = std::move(kept);
  return config;
}

void add_gguf_roles(const Tokenizer& tokenizer, const std::string& config, const std::string& name,
                    GgufMetadata& metadata) {
  if (tokenizer.bos_id() >= 0) metadata[kTokenRoles[0].gguf] = int64_t{tokenizer.bos_id()};
  if (tokenizer.eod_id() >= 0) metadata[kTokenRoles[1].gguf] = int64_t{tokenizer.eod_id()};
  const TokensAround around = tokens_around(tokenizer);
  metadata["tokenizer.ggml.add_bos_token"] = around.bos;
  if (around.eos) metadata["tokenizer.ggml.add_eos_token"] = true;
  if (config.empty()) return;
  const TokenizerConfig read = parse_tokenizer_config(config, name);
  for (const TokenRole& role : kTokenRoles) {
    if (role.name == nullptr || metadata.contains(role.gguf)) continue;
    const auto found = read.roles.find(role.name);
    if (found == read.roles.end() || !found->second.has_value()) continue;
    if (const int32_t id = tokenizer.find(*found->second); id >= 0)
      metadata[role.gguf] = int64_t{id};
  }
  auto rest = parse_strict_json<PlainJson>(config, name, kGgufJsonLimits);
  const PlainJson kept = rest.value(kConfigGgufMetadata, PlainJson::object());
  for (const auto& [key, value] : kept.items()) {
    const bool known = key.starts_with("tokenizer.") &&
                       gguf_tokenizer_schema().find_any(key.substr(10)) != nullptr;
    if (!known || !(value.is_number_integer() || value.is_boolean() || value.is_string()))
      fail_input(name, ": \"", kConfigGgufMetadata, "\" holds \"", key,
                 "\", which is not a GGUF tokenizer key that conversions keep");
    if (metadata.contains(key)) continue;
    if (value.is_boolean()) metadata[key] = value.get<bool>();
    if (value.is_string()) metadata[key] = value.get<std::string>();
    if (value.is_number_integer()) {
      if (key.ends_with("_token_id") && value.get<int64_t>() >= tokenizer.vocab_size()) continue;
      metadata[key] = value.get<int64_t>();
    }
  }
  rest.erase(kConfigGgufMetadata);
  rest.erase("chat_template");
  if (!rest.empty()) metadata[kGgufTokenizerConfig] = rest.dump();
}

TokensAround tokens_around(const Tokenizer& tokenizer) {
  const std::vector<int32_t> around = tokenizer.encode("", {.add_special = true});
  TokensAround out{};
  out.bos = !around.empty() && tokenizer.bos_id() >= 0 && around.front() == tokenizer.bos_id();
  out.eos = around.size() > (out.bos ? 1U : 0U) && around.back() == tokenizer.eod_id();
  return out;
}

}  // namespace trireme
