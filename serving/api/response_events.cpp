#include "serving/api/response_events.h"

#include <utility>

#include "serving/api/choice_logprobs.h"
#include "serving/api/sse_frame.h"

namespace trireme {

void ResponseEvents::write_usage_so_far(JsonWriter& json) const {
  if (!response_.form.include_usage) return;
  json.key("usage");
  if (response_.form.usage_in_each)
    write_usage(json, usage_);
  else
    json.null();
}

// role: first event of a chat's choice. Writes pending ids and log-probabilities too.
void ResponseEvents::write_frame(GenerationChoice& choice, const std::string& text, bool role,
                                 const char* finish) {
  std::string data;
  JsonWriter json(data);
  response_.begin_json(json);
  json.key("choices").begin_array().begin_object();
  json.key("index").integer(static_cast<int64_t>(choice.index));
  if (response_.form.chat) {
    json.key("delta").begin_object();
    if (role) json.key("role").string("assistant");
    if (role || finish == nullptr) json.key("content").string(text);
    json.end_object();
  } else {
    json.key("text").string(text);
  }
  json.key("logprobs");
  if (role || choice.reported.empty()) {
    json.null();
  } else {
    write_logprobs(json, response_, choice);
    choice.reported.clear();
  }
  json.key("finish_reason");
  if (finish == nullptr)
    json.null();
  else
    json.string(finish);
  if (finish != nullptr) choice.write_stop_reason(json);
  if (response_.form.token_ids && !role) write_new_ids(json, choice);
  json.end_object().end_array();
  if (response_.form.token_ids && role)
    write_ids(json, "prompt_token_ids", response_.prompt_of(choice.index));
  write_usage_so_far(json);
  json.end_object();
  frames_ += sse_frame(data);
}

// Ids of the tokens since the choice's last event; a completion's first event has the prompt's too.
void ResponseEvents::write_new_ids(JsonWriter& json, GenerationChoice& choice) const {
  if (!response_.form.chat && !std::exchange(choice.prompt_written, true))
    write_ids(json, "prompt_token_ids", response_.prompt_of(choice.index));
  write_ids(json, "token_ids", std::exchange(choice.ids, {}));
}

void ResponseEvents::write_call(const GenerationChoice& choice, const ToolCallDelta::Call& call,
                                bool begins) {
  std::string data;
  JsonWriter json(data);
  response_.begin_json(json);
  json.key("choices").begin_array().begin_object();
  json.key("index").integer(static_cast<int64_t>(choice.index));
  json.key("delta").begin_object().key("tool_calls").begin_array().begin_object();
  json.key("index").integer(call.index);
  if (begins)
    json.key("id")
        .string(response_.call_id(choice.index, call.index))
        .key("type")
        .string("function");
  json.key("function").begin_object();
  if (begins) json.key("name").string(call.name);
  json.key("arguments").string(begins ? "" : call.arguments);
  json.end_object().end_object().end_array().end_object();
  json.key("logprobs").null().key("finish_reason").null().end_object().end_array();
  write_usage_so_far(json);
  json.end_object();
  frames_ += sse_frame(data);
}

void ResponseEvents::write_calls(const GenerationChoice& choice,
                                 const std::vector<ToolCallDelta::Call>& calls) {
  for (const ToolCallDelta::Call& call : calls) {
    if (!call.name.empty()) write_call(choice, call, true);
    if (!call.arguments.empty()) write_call(choice, call, false);
  }
}

void ResponseEvents::end() {
  if (response_.form.include_usage) {
    std::string data;
    JsonWriter json(data);
    response_.begin_json(json);
    json.key("choices").begin_array().end_array().key("usage");
    write_usage(json, usage_);
    json.end_object();
    frames_ += sse_frame(data);
  }
  frames_ += sse_frame("[DONE]");
}

}  // namespace trireme
