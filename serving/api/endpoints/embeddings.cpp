#include "serving/api/endpoints/embeddings.h"

#include "serving/api/generation_fields.h"

namespace trireme {
namespace {

DType dtype_of_embeddings(const std::string& name) {
  if (name == "float16") return DType::kF16;
  return name == "bfloat16" ? DType::kBF16 : DType::kF32;
}

const FieldTable<EmbeddingsRequest>& embeddings_table() {
  static const FieldTable<EmbeddingsRequest> made = [] {
    using R = EmbeddingsRequest;
    FieldTable<R> t;
    t.string("model", &R::model, "Model id.").size_range(1, 512).required();
    t.other("input", FieldKind::kOther, "", kStringsShape,
            "A text, a list of up to 2048 texts, or their token ids.",
            [](R& r, const ApiJson& v, const Field& f) { r.inputs = read_prompts(f, v, 2048); })
        .required();
    t.other("encoding_format", FieldKind::kString, "\"float\"", "",
            "Format of a vector: float (list of numbers) or base64 (bytes of the numbers, see "
            "embed_dtype and endianness).",
            [](R& r, const ApiJson& v, const Field& f) {
              r.format.base64 = read_string(f, v) == "base64";
            })
        .one_of({"float", "base64"});
    t.other("embed_dtype", FieldKind::kString, "\"float32\"", "",
            "Number type of base64; a list of numbers always has float32.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.format.dtype = dtype_of_embeddings(read_string(f, v));
            })
        .one_of({"float32", "float16", "bfloat16"});
    t.other("endianness", FieldKind::kString, "\"little\"", "",
            "Byte order of base64: little (least significant byte first), big, or native, which is "
            "little.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.format.big_endian = read_string(f, v) == "big";
            })
        .one_of({"native", "little", "big"});
    t.boolean("normalize", &R::normalize, "true", "Normalize vectors to length one.");
    t.boolean("add_special_tokens", &R::add_special, "true",
              "Add the tokenizer's special tokens around a text.");
    t.other("truncate_prompt_tokens", FieldKind::kInteger, "", "",
            "Maximum tokens of a text, special tokens included; longer texts are truncated. -1: "
            "the server's maximum. Absent: texts above the server's maximum are refused.",
            [](R& r, const ApiJson& v, const Field& f) {
              r.truncate_prompt_tokens = read_integer(f, v);
              if (r.truncate_prompt_tokens == 0)
                fail_field(f.name, f.name, ": expected -1 or at least 1");
            })
        .range(-1, 1e9);
    t.other(
         "truncation_side", FieldKind::kString, "\"left\"", "",
         "Side from which truncation removes tokens: left (the start) or right.",
         [](R& r, const ApiJson& v, const Field& f) { r.keeps_end = read_string(f, v) == "left"; })
        .one_of({"left", "right"});
    t.other("dimensions", FieldKind::kInteger, "", "",
            "Number of dimensions to which embeddings are truncated.",
            [](R& r, const ApiJson& v, const Field& f) { r.dimensions = read_integer(f, v); })
        .range(1, 1e6);
    t.string("cache_salt", &R::cache_salt,
             "Salt of the prefix cache: prefixes are shared only with requests that have the same "
             "salt.")
        .size_range(1, 1024);
    t.add_peer_fields('e');
    return t;
  }();
  return made;
}

std::span<const Field> embeddings_fields() { return embeddings_table().fields(); }

}  // namespace

const Endpoint kEmbeddingsEndpoint = {.method = "POST",
                                      .path = "/v1/embeddings",
                                      .summary = "Create embeddings",
                                      .fields = embeddings_fields,
                                      .is_admitted = true};

EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits) {
  EmbeddingsRequest request;
  embeddings_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  const EmbeddingFormat& format = request.format;
  if (!format.base64 && format.dtype != DType::kF32)
    fail_field("embed_dtype", "embed_dtype is only allowed with encoding_format \"base64\"");
  if (!format.base64 && format.big_endian)
    fail_field("endianness", "endianness is only allowed with encoding_format \"base64\"");
  for (const Prompt& input : request.inputs) check_ids("input", input.tokens, limits.vocab_size);
  return request;
}

}  // namespace trireme
