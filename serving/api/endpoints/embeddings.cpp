#include "serving/api/endpoints/embeddings.h"

#include "serving/api/generation_fields.h"

namespace trireme {
namespace {

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

std::span<const Field> embeddings_fields() { return embeddings_table().fields(); }

}  // namespace

const Endpoint kEmbeddingsEndpoint = {.method = "POST",
                                      .path = "/v1/embeddings",
                                      .summary = "Vectors of texts",
                                      .fields = embeddings_fields,
                                      .is_admitted = true};

EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits) {
  EmbeddingsRequest request;
  embeddings_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  for (const Prompt& input : request.inputs) check_ids("input", input.tokens, limits.vocab_size);
  return request;
}

}  // namespace trireme
