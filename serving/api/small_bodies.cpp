#include "serving/api/small_bodies.h"

#include "serving/api/json_writer.h"

namespace trireme {
namespace {

void write_model(JsonWriter& json, const ModelCard& card) {
  json.begin_object();
  json.key("id").string(card.id);
  json.key("object").string("model");
  json.key("created").integer(card.created);
  json.key("owned_by").string("trireme");
  json.key("root").string(card.root);
  json.key("parent");
  if (card.parent.empty())
    json.null();
  else
    json.string(card.parent);
  json.key("max_model_len").integer(card.max_model_len);
  json.end_object();
}

}  // namespace

std::string model_body(const ModelCard& card) {
  std::string out;
  JsonWriter json(out);
  write_model(json, card);
  return out;
}

std::string model_list_body(std::span<const ModelCard> cards) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const ModelCard& card : cards) write_model(json, card);
  json.end_array().end_object();
  return out;
}

std::string tokenize_body(std::span<const int32_t> tokens, int64_t max_model_len,
                          const std::function<std::string(int32_t)>& spelling) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("count").integer(std::ssize(tokens));
  json.key("max_model_len").integer(max_model_len).key("tokens").begin_array();
  for (const int32_t token : tokens) json.integer(token);
  json.end_array().key("token_strs");
  if (!spelling) {
    json.null();
  } else {
    json.begin_array();
    for (const int32_t token : tokens) json.string(spelling(token));
    json.end_array();
  }
  json.end_object();
  return out;
}

std::string detokenize_body(const std::string& utf8) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("prompt").string(utf8).end_object();
  return out;
}

}  // namespace trireme
