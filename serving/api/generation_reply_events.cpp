// The events of a stream: GenerationReply's choices as they come.
#include <utility>

#include "serving/api/generation_reply_choice.h"
#include "serving/api/json_writer.h"

namespace trireme {

// role: the first event of a chat's choice. What is told of tokens goes with it.
void GenerationReply::write_frame(Choice& choice, const std::string& text, bool role,
                                  const char* finish, std::string& frames) {
  std::string data;
  JsonWriter json(data);
  begin_json(json);
  json.key("choices").begin_array().begin_object();
  json.key("index").integer(static_cast<int64_t>(choice.index));
  if (form_.chat) {
    json.key("delta").begin_object();
    if (role) json.key("role").string("assistant");
    if (role || finish == nullptr) json.key("content").string(text);
    json.end_object();
  } else {
    json.key("text").string(text);
  }
  json.key("logprobs");
  if (role || choice.told.empty()) {
    json.null();
  } else {
    write_logprobs(json, choice);
    choice.told.clear();
  }
  json.key("finish_reason");
  if (finish == nullptr)
    json.null();
  else
    json.string(finish);
  if (finish != nullptr) write_stop_reason(json, choice);
  if (form_.token_ids && !role) write_new_ids(json, choice);
  json.end_object().end_array();
  if (form_.token_ids && role) write_ids(json, "prompt_token_ids", prompt_of(choice));
  if (form_.include_usage) {
    json.key("usage");
    if (form_.usage_in_each)
      write_usage(json);
    else
      json.null();
  }
  json.end_object();
  frames += sse_frame(data);
}

// Of a stream: since the last event of the choice. A completion's first has its prompt's too.
void GenerationReply::write_new_ids(JsonWriter& json, Choice& choice) const {
  if (!form_.chat && !std::exchange(choice.prompt_told, true))
    write_ids(json, "prompt_token_ids", prompt_of(choice));
  write_ids(json, "token_ids", std::exchange(choice.ids, {}));
}

// An event for each: first the name, then the arguments as they come.
void GenerationReply::write_calls(Choice& choice, const std::vector<ToolCallDelta::Call>& calls,
                                  std::string& frames) {
  const auto write = [&](const ToolCallDelta::Call& call, bool begins) {
    std::string data;
    JsonWriter json(data);
    begin_json(json);
    json.key("choices").begin_array().begin_object();
    json.key("index").integer(static_cast<int64_t>(choice.index));
    json.key("delta").begin_object().key("tool_calls").begin_array().begin_object();
    json.key("index").integer(call.index);
    if (begins) json.key("id").string(call_id(choice, call.index)).key("type").string("function");
    json.key("function").begin_object();
    if (begins) json.key("name").string(call.name);
    json.key("arguments").string(begins ? "" : call.arguments);
    json.end_object().end_object().end_array().end_object();
    json.key("logprobs").null().key("finish_reason").null().end_object().end_array();
    if (form_.include_usage) {
      json.key("usage");
      if (form_.usage_in_each)
        write_usage(json);
      else
        json.null();
    }
    json.end_object();
    frames += sse_frame(data);
  };
  for (const ToolCallDelta::Call& call : calls) {
    if (!call.name.empty()) write(call, true);
    if (!call.arguments.empty()) write(call, false);
  }
}

void GenerationReply::end_stream(std::string& frames) {
  if (form_.include_usage) {
    std::string data;
    JsonWriter json(data);
    begin_json(json);
    json.key("choices").begin_array().end_array().key("usage");
    write_usage(json);
    json.end_object();
    frames += sse_frame(data);
  }
  frames += sse_frame("[DONE]");
}

}  // namespace trireme
