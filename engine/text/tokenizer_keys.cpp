#include "engine/text/tokenizer_keys.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/config/reader.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

void add_ignored_words(Schema& schema, const char* names) {
  std::istringstream all(names);
  for (std::string key; all >> key;) schema.ignored(key);
}

void add_named_tokens(Schema& schema) {
  schema.any("bos_token", "", "token", "token that begins a text; null: none").or_null();
  schema.any("eos_token", "", "token", "token that ends a text; null: none").or_null();
  for (const char* key : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    schema.any(key, "", "token", "a special token, appended to a vocabulary that lacks it")
        .or_null();
  schema.any("*_token", "", "token", "any other key with this ending: as unk_token").or_null();
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
    schema
        .any(key, "", "list, or object of names",
             "special tokens, appended to a vocabulary that lacks them")
        .or_null();
  schema.any("model_specific_special_tokens", "", "object of names", "as extra_special_tokens")
      .or_null();
  schema
      .any("added_tokens_decoder", "", "object by id",
           "added tokens; their flags precede those of tokenizer.json. With this key "
           "special_tokens_map.json is not read; else its tokens precede those here. Tokens of "
           "added_tokens.json are added in both cases")
      .or_null();
}

void add_encoding(Schema& schema) {
  schema
      .string("tokenizer_class", "",
              "whether add_prefix_space changes a tokenizer.json; no effect on a tokenizer.model")
      .or_null();
  schema
      .any("add_prefix_space", "", "boolean",
           "whether encoding adds a space before a text; overrides tokenizer.model and, "
           "as in transformers 5, tokenizer.json: ByteLevel with tokenizer_class "
           "GPT2Tokenizer, Qwen2Tokenizer and others that set it up, or without a class; "
           "Metaspace and Prepend with LlamaTokenizer, or without a class. No effect with "
           "PreTrainedTokenizerFast; refused with other classes if tokenizer.json differs")
      .or_null();
  schema
      .any("legacy", "", "boolean",
           "false: no space before what follows a special token; with tokenizer.json only of "
           "Metaspace, with tokenizer_class LlamaTokenizer; else no effect")
      .or_null();
  for (const char* key : {"add_bos_token", "add_eos_token"})
    schema
        .any(key, "", "boolean",
             "with tokenizer.model: whether that token is added around a text; no effect "
             "with tokenizer.json, whose post_processor adds tokens, as in transformers 5")
        .or_null();
  schema
      .any("clean_up_tokenization_spaces", "", "boolean",
           "no effect with BPE, as in transformers 5; true is refused with Unigram")
      .or_null();
  schema.unavailable("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
                     {"false"}, "spaces dropped from decoded text");
  schema.unavailable("split_special_tokens", {"false"},
                     "special tokens in a chat template's output encoded as text");
  schema.any("chat_template", "", "text, or list of named ones", "chat template").or_null();
  schema
      .any(kConfigGgufMetadata, "", "object",
           "written by an export of a GGUF file: keys that a conversion to GGUF restores")
      .or_null();
}

// llama.cpp's special tokens, by how they are handled.
void add_gguf_ids(Schema& schema) {
  schema.integer("ggml.bos_token_id", "", "token that begins a text: bos_token");
  schema.integer("ggml.eos_token_id", "", "stop token: eos_token");
  for (const char* key : {"ggml.eot_token_id", "ggml.eom_token_id"})
    schema.integer(key, "",
                   "stop token: end of a turn, of a message; kept in generation_config.json");
  const std::pair<const char*, const char*> named[] = {{"ggml.unknown_token_id", "unk_token"},
                                                       {"ggml.padding_token_id", "pad_token"},
                                                       {"ggml.cls_token_id", "cls_token"},
                                                       {"ggml.mask_token_id", "mask_token"}};
  for (const auto& [key, name] : named)
    schema.integer(key, "", concat("kept by conversions: ", name, " of tokenizer_config.json"));
  schema
      .integer("ggml.seperator_token_id", "",
               "kept by conversions: sep_token of tokenizer_config.json")
      .alias({"ggml.separator_token_id"});
  for (const char* key : {"ggml.fim_pre_token_id", "ggml.fim_suf_token_id", "ggml.fim_mid_token_id",
                          "ggml.fim_pad_token_id", "ggml.fim_rep_token_id", "ggml.fim_sep_token_id",
                          "ggml.prefix_token_id", "ggml.suffix_token_id", "ggml.middle_token_id"})
    schema.integer(key, "", "kept by conversions: gguf_metadata of tokenizer_config.json");
}

void add_gguf_encoding(Schema& schema) {
  schema.string("huggingface.json", "", "a whole tokenizer.json, which precedes model to merges");
  schema.string("ggml.model", "", "gpt2 or llama; others only with huggingface.json");
  schema.string("ggml.pre", "",
                "pre-tokenizer of gpt2: gpt-2 (also without it), llama-bpe or qwen2");
  schema.any("ggml.tokens", "", "list", "vocabulary");
  schema.any("ggml.token_type", "", "list", "kinds of tokens: normal, control, byte, ...");
  schema.any("ggml.scores", "", "list", "order of merges of llama; no effect with gpt2");
  schema.any("ggml.merges", "", "list", "merges of gpt2; no effect with llama");
  schema.any("ggml.add_bos_token", "", "boolean",
             "whether bos is added before a text; overrides huggingface.json");
  schema.any("ggml.add_eos_token", "", "boolean",
             "whether eos is added after a text; overrides huggingface.json");
  schema.any("ggml.add_space_prefix", "", "boolean",
             "whether llama adds a space before a text; no effect with gpt2, as in "
             "llama.cpp");
  schema.ignored("ggml.add_sep_token");     // for pairs of texts
  schema.ignored("ggml.token_type_count");  // rows of an embedding that these models lack
  schema.unavailable("ggml.remove_extra_whitespaces", {"false"}, "folded white space");
  schema.unavailable("ggml.precompiled_charsmap", {"[]", "\"\""}, "a character map");
  schema.unavailable("rwkv.world", {"\"\""}, "RWKV's tokenizer");
}

Schema made_gguf_schema() {
  Schema schema("GGUF metadata of a tokenizer");
  add_gguf_encoding(schema);
  add_gguf_ids(schema);
  schema.string("chat_template", "",
                "chat template; chat_template.NAME: those of other names, kept by conversions");
  schema.any("chat_templates", "", "list", "names of chat templates, kept by conversions");
  schema.any("trireme.stop_token_ids", "", "list", "stop tokens beyond eos, eot and eom");
  schema.integer("trireme.model_bos_token_id", "",
                 "bos_token_id of config.json, where it is not the tokenizer's");
  schema.string("trireme.config", "",
                "tokenizer_config.json that a conversion found; llama.cpp's keys precede it");
  schema.finish();
  return schema;
}

Schema made_config_schema() {
  Schema schema("tokenizer_config.json");
  add_named_tokens(schema);
  add_encoding(schema);
  for (const char* key : {"do_lower_case", "do_lowercase", "remove_space", "strip_accents"})
    schema.unavailable(key, {"false"}, "a tokenizer that changes its texts in Python");
  schema.unavailable("fix_mistral_regex", {"false"}, "another pre-tokenizer");
  // Lengths, padding and truncation of batches; files, classes and programs; roles of other
  // modalities; settings of tokenizers that are also in tokenizer.json or tokenizer.model.
  add_ignored_words(
      schema,
      "model_max_length max_len max_length padding padding_side truncation truncation_side "
      "truncation_strategy stride pad_to_multiple_of pad_token_type_id pad_token_id bos_token_id "
      "eos_token_id unk_token_id model_input_names return_token_type_ids return_tensors verbose "
      "token_type_ids name_or_path _name_or_path _commit_hash transformers_version tokenizer_file "
      "tokenizer_type vocab_file merges_file special_tokens_map_file added_tokens_file "
      "tokenizer_config_file use_fast from_slow slow_tokenizer_class backend files_loaded is_local "
      "local_files_only cache_dir revision trust_remote_code code_revision subfolder auto_map "
      "_auto_class "
      "processor_class feature_extractor_type device_map torch_dtype dtype init_inputs vocab_size "
      "errors sp_model_kwargs use_default_system_prompt use_default_system_prompt_template "
      "spaces_between_special_tokens trim_offsets byte_fallback fuse_unk dropout "
      "continuing_subword_prefix end_of_word_suffix unk_id keep_accents clean_text "
      "tokenize_chinese_chars never_split do_basic_tokenize do_split_on_punc split_by_punct "
      "normalize_text response_schema response_template chat_control_tokens language license "
      "additional_special_tokens_ids special_tokens extra_ids special_tokens_pattern "
      "*_token_id suppress_tokens suffix_first decode_with_prefix_space is_fast image_size "
      "patch_size image_seq_len fill_token_id mergeable_ranks unsloth_version tokenizer_name "
      "add_special_tokens padding_strategy max_seq_length base_model library_name tags "
      "default_chat_template added_tokens tool_parser_type reasoning_parser_type tool_parser "
      "reasoning_parser use_auth_token force_download resume_download proxies _from_auto "
      "_from_pipeline _raise_exceptions_for_missing_entries");
  schema.finish();
  return schema;
}

// Long lists are represented by their length: their contents are checked where they are read.
Json shown_value(const GgufValue& value) {
  const auto brief = [](const auto& list) {
    return list.empty() ? Json::array() : Json(concat(list.size(), " values"));
  };
  if (const auto* whole = std::get_if<std::vector<int64_t>>(&value)) return brief(*whole);
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) return brief(*numbers);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return brief(*texts);
  if (const auto* text = std::get_if<std::string>(&value)) return Json(text->substr(0, 256));
  return std::visit([](const auto& v) { return Json(v); }, value);
}

}  // namespace

const Schema& tokenizer_config_schema() {
  static const Schema schema = made_config_schema();
  return schema;
}

const Schema& gguf_tokenizer_schema() {
  static const Schema schema = made_gguf_schema();
  return schema;
}

void check_gguf_tokenizer_keys(const GgufFile& file) {
  const std::string prefix = "tokenizer.", templates = "chat_template.";
  const Schema& schema = gguf_tokenizer_schema();
  ConfigReport report;
  Json known = Json::object();
  for (const auto& [name, value] : file.metadata()) {
    if (!name.starts_with(prefix)) continue;
    std::string key = name.substr(prefix.size());
    if (key.starts_with(templates)) {
      if (!std::holds_alternative<std::string>(value))
        report.error(shown(Json(name)), "must be a string");
      continue;
    }
    if (schema.find_any(key) == nullptr) {
      report.error(shown(Json(name)),
                   concat("unknown key (value ", shown(shown_value(value)),
                          "), which may change how text is encoded (docs/reference/model-keys.md "
                          "lists the known keys); give the model's own tokenizer.json with "
                          "--tokenizer"));
      if (report.errors().size() >= 20) break;
      continue;
    }
    value_at(known, key) = shown_value(value);
  }
  read_config(schema, known, "tokenizer", report);
  report.throw_if_errors(file.path());
}

}  // namespace trireme
