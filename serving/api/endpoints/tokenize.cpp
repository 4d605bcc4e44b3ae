#include "serving/api/endpoints/tokenize.h"

#include <optional>
#include <utility>

#include "serving/api/chat_messages.h"
#include "serving/api/generation_fields.h"

namespace trireme {
namespace {

struct TokenizeFields : TokenizeRequest {
  std::optional<bool> special;
  std::optional<bool> add_generation_prompt;
  bool continue_final_message = false, is_text = false;
  ApiJson given = ApiJson::object(), kwargs = ApiJson::object();
};

const FieldTable<TokenizeFields>& tokenize_table() {
  static const FieldTable<TokenizeFields> made = [] {
    using R = TokenizeFields;
    FieldTable<R> t;
    t.string("model", &R::model, "Model id; absent: the served model.").size_range(1, 512);
    t.other("prompt", FieldKind::kString, "", "",
            "Text to tokenize; exactly one of `prompt` and `messages` is required.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.prompt = read_string(f, v);
              r.is_text = true;
            });
    t.other("messages", FieldKind::kArray, "", R"({"minItems":1,"items":{"type":"object"}})",
            "Conversation to tokenize, as in /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field&) {
              r.given["messages"] = read_messages(v, r.unknown);
            })
        .size_range(1, 1 << 14);
    t.other("tools", FieldKind::kArray, "", R"({"items":{"type":"object"}})",
            "As in /v1/chat/completions.", [](R& r, const ApiJson& v, const Field&) {
              ToolNames names;
              r.given["tools"] = read_tools(v, names);
            });
    t.other("add_special_tokens", FieldKind::kBoolean, "", "",
            "Add the special tokens that the model expects before a text (default: true for a "
            "text, false for a conversation).",
            [](R& r, const ApiJson& v, const Field& f) { r.special = read_boolean(f, v); });
    t.other("add_generation_prompt", FieldKind::kBoolean, "true", "", "As in /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.add_generation_prompt = read_boolean(f, v);
            });
    t.boolean("continue_final_message", &R::continue_final_message, "false",
              "As in /v1/chat/completions.");
    t.other("chat_template", FieldKind::kString, "", "", "As in /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.given["chat_template"] = read_string(f, v);
            });
    t.other("documents", FieldKind::kArray, "", R"({"items":{"type":"object"}})",
            "As in /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field&) { r.given["documents"] = read_documents(v); })
        .size_range(0, 128);
    t.other("chat_template_kwargs", FieldKind::kObject, "", R"({"additionalProperties":true})",
            "As in /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field&) { r.kwargs = v; })
        .size_range(0, 32);
    t.other("reasoning_effort", FieldKind::kString, "", "", "As in /v1/chat/completions.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.given["reasoning_effort"] = read_string(f, v);
            })
        .one_of({"none", "minimal", "low", "medium", "high", "xhigh", "max"});
    t.boolean("return_token_strs", &R::token_strings, "false",
              "Also return the string of each token.");
    t.add_peer_fields('t');
    return t;
  }();
  return made;
}

std::span<const Field> tokenize_fields() { return tokenize_table().fields(); }

}  // namespace

const Endpoint kTokenizeEndpoint = {.method = "POST",
                                    .path = "/tokenize",
                                    .summary = "Tokenize a text or a conversation",
                                    .fields = tokenize_fields};

TokenizeRequest parse_tokenize(std::string_view body, const RequestLimits& limits) {
  TokenizeFields r;
  tokenize_table().read(parse_body(body, limits.json_depth), r, r.unknown);
  const bool chat = r.given.contains("messages");
  if (chat == r.is_text) fail_field("prompt", "expected either prompt or messages");
  r.add_special = r.special.value_or(!chat);
  if (chat) {
    add_prompt_ending(r.add_generation_prompt, r.continue_final_message, r.given);
    add_template_variables(r.kwargs, r.given);
    r.variables = std::make_shared<const ApiJson>(std::move(r.given));
  }
  return std::move(static_cast<TokenizeRequest&>(r));
}

}  // namespace trireme
