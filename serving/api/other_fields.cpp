#include <algorithm>

#include "serving/api/chat_messages.h"
#include "serving/api/field_lists.h"
#include "serving/api/generation_fields.h"

namespace trireme {
namespace {

struct TokenizeFields : TokenizeRequest {
  std::optional<bool> special;
  bool add_generation_prompt = true, is_text = false;
  ApiJson given = ApiJson::object(), kwargs = ApiJson::object();
};

const FieldTable<EmbeddingsRequest>& embeddings_table() {
  static const FieldTable<EmbeddingsRequest> made = [] {
    using R = EmbeddingsRequest;
    FieldTable<R> t;
    t.string("model", &R::model, "The model's id.").entries(1, 512).required();
    t.other("input", FieldKind::kOther, "", kStringsShape,
            "A text, or up to 2048, or their tokens.",
            [](R& r, const ApiJson& v, const Field& f) { r.inputs = read_prompts(f, v, 2048); })
        .required();
    t.other(
         "encoding_format", FieldKind::kString, "\"float\"", "",
         "base64: the bytes of the float32 numbers, least significant first.",
         [](R& r, const ApiJson& v, const Field& f) { r.base64 = read_string(f, v) == "base64"; })
        .one_of({"float", "base64"});
    t.other("dimensions", FieldKind::kInteger, "", "", "Numbers of an embedding.",
            [](R& r, const ApiJson& v, const Field& f) { r.dimensions = read_integer(f, v); })
        .range(1, 1e6);
    t.ignored("user", "Changes nothing on this server.");
    return t;
  }();
  return made;
}

const FieldTable<TokenizeFields>& tokenize_table() {
  static const FieldTable<TokenizeFields> made = [] {
    using R = TokenizeFields;
    FieldTable<R> t;
    t.string("model", &R::model, "The model's id; absent: the only one.").entries(1, 512);
    t.other("prompt", FieldKind::kString, "", "", "A text; or else `messages`.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.prompt = read_string(f, v);
              r.is_text = true;
            });
    t.other("messages", FieldKind::kArray, "", R"({"minItems":1,"items":{"type":"object"}})",
            "A conversation, as of /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field&) { r.given["messages"] = read_messages(v); })
        .entries(1, 1 << 14);
    t.other("tools", FieldKind::kArray, "", R"({"items":{"type":"object"}})",
            "As of /v1/chat/completions.", [](R& r, const ApiJson& v, const Field&) {
              ToolNames names;
              r.given["tools"] = read_tools(v, names);
            });
    t.other("add_special_tokens", FieldKind::kBoolean, "", "",
            "Special tokens of the beginning; by default with a text, not with a conversation.",
            [](R& r, const ApiJson& v, const Field& f) { r.special = read_boolean(f, v); });
    t.boolean("add_generation_prompt", &R::add_generation_prompt, "true",
              "As of /v1/chat/completions.");
    t.other("chat_template_kwargs", FieldKind::kObject, "", R"({"additionalProperties":true})",
            "As of /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field&) { r.kwargs = v; })
        .entries(0, 32);
    t.boolean("return_token_strs", &R::token_strings, "false", "The tokens' spellings too.");
    t.refused("chat_template", {}, "templates are programs, and only the server's own are run");
    return t;
  }();
  return made;
}

const FieldTable<DetokenizeRequest>& detokenize_table() {
  static const FieldTable<DetokenizeRequest> made = [] {
    using R = DetokenizeRequest;
    FieldTable<R> t;
    t.string("model", &R::model, "The model's id; absent: the only one.").entries(1, 512);
    t.other("tokens", FieldKind::kArray, "", R"({"items":{"type":"integer","minimum":0}})",
            "Token ids.", [](R& r, const ApiJson& v, const Field& f) { r.tokens = read_ids(f, v); })
        .entries(0, kMostListed)
        .required();
    return t;
  }();
  return made;
}

const FieldTable<WeightsRequest>& weights_table() {
  static const FieldTable<WeightsRequest> made = [] {
    using R = WeightsRequest;
    FieldTable<R> t;
    t.string("model", &R::model,
             "A path on the server, as of --model; absent: the one that is served, of a run its "
             "newest whole checkpoint.")
        .entries(1, 4096);
    t.other("mode", FieldKind::kString, "\"wait\"", "",
            "What becomes of requests under way: they end first; with an error; they go on behind "
            "their keys and values.",
            [](R& r, const ApiJson& v, const Field& f) { r.mode = read_string(f, v); })
        .one_of({"wait", "abort", "keep"});
    return t;
  }();
  return made;
}

FieldTable<AdapterRequest> adapter_table(bool loads) {
  using R = AdapterRequest;
  FieldTable<R> t;
  t.string("lora_name", &R::name, "The adapter's id in requests.").entries(1, 512).required();
  if (loads) {
    t.string("lora_path", &R::path, "A directory on the server, as PEFT writes it.")
        .entries(1, 4096)
        .required();
    t.unavailable("load_inplace", {"false"}, "unload the adapter first");
  }
  t.ignored("lora_int_id", "Changes nothing on this server.");
  return t;
}

const FieldTable<AdapterRequest>& load_adapter_table() {
  static const FieldTable<AdapterRequest> made = adapter_table(true);
  return made;
}

const FieldTable<AdapterRequest>& unload_adapter_table() {
  static const FieldTable<AdapterRequest> made = adapter_table(false);
  return made;
}

// Names and paths go into logs, and names into a list in a metric's label.
void check_words(const char* field, const std::string& words, bool listed) {
  for (const char c : words)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || (listed && c == ','))
      fail_field(field, field, " must have no control characters", listed ? " and no commas" : "");
}

}  // namespace

const std::vector<Field>& embeddings_fields() { return embeddings_table().fields(); }
const std::vector<Field>& tokenize_fields() { return tokenize_table().fields(); }
const std::vector<Field>& detokenize_fields() { return detokenize_table().fields(); }
const std::vector<Field>& weights_fields() { return weights_table().fields(); }
const std::vector<Field>& load_adapter_fields() { return load_adapter_table().fields(); }
const std::vector<Field>& unload_adapter_fields() { return unload_adapter_table().fields(); }

EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits) {
  EmbeddingsRequest request;
  embeddings_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  for (const Prompt& input : request.inputs) check_ids("input", input.tokens, limits.vocab_size);
  return request;
}

TokenizeRequest parse_tokenize(std::string_view body, const RequestLimits& limits) {
  TokenizeFields r;
  tokenize_table().read(parse_body(body, limits.json_depth), r, r.unknown);
  const bool chat = r.given.contains("messages");
  if (chat == r.is_text)
    fail_field("prompt", "one of prompt and messages is required, and not both");
  r.add_special = r.special.value_or(!chat);
  if (chat) {
    r.given["add_generation_prompt"] = r.add_generation_prompt;
    add_template_variables(r.kwargs, r.given);
    r.variables = std::make_shared<const ApiJson>(std::move(r.given));
  }
  return std::move(static_cast<TokenizeRequest&>(r));
}

DetokenizeRequest parse_detokenize(std::string_view body, const RequestLimits& limits) {
  DetokenizeRequest request;
  detokenize_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  check_ids("tokens", request.tokens, limits.vocab_size);
  return request;
}

WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits) {
  WeightsRequest request;
  weights_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  return request;
}

AdapterRequest parse_load_adapter(std::string_view body, const RequestLimits& limits) {
  AdapterRequest request;
  load_adapter_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  check_words("lora_name", request.name, true);
  check_words("lora_path", request.path, false);
  return request;
}

AdapterRequest parse_unload_adapter(std::string_view body, const RequestLimits& limits) {
  AdapterRequest request;
  unload_adapter_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  check_words("lora_name", request.name, true);
  return request;
}

std::span<const Field> fields_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kCompletions: return completion_fields();
    case Endpoint::kChat: return chat_fields();
    case Endpoint::kEmbeddings: return embeddings_fields();
    case Endpoint::kTokenize: return tokenize_fields();
    case Endpoint::kDetokenize: return detokenize_fields();
    case Endpoint::kWeights: return weights_fields();
    case Endpoint::kLoadAdapter: return load_adapter_fields();
    case Endpoint::kUnloadAdapter: return unload_adapter_fields();
  }
  return {};
}

}  // namespace trireme
