#include "serving/api/endpoints/detokenize.h"

#include "serving/api/generation_fields.h"

namespace trireme {
namespace {

const FieldTable<DetokenizeRequest>& detokenize_table() {
  static const FieldTable<DetokenizeRequest> made = [] {
    using R = DetokenizeRequest;
    FieldTable<R> t;
    t.string("model", &R::model, "Model id; absent: the served model.").size_range(1, 512);
    t.other("tokens", FieldKind::kArray, "", R"({"items":{"type":"integer","minimum":0}})",
            "Token ids.", [](R& r, const ApiJson& v, const Field& f) { r.tokens = read_ids(f, v); })
        .size_range(0, kMaxListed)
        .required();
    t.boolean("skip_special_tokens", &R::skip_special, "true",
              "Leave control tokens, such as <s>, out of the text; false: include them.");
    t.add_peer_fields('d');
    return t;
  }();
  return made;
}

std::span<const Field> detokenize_fields() { return detokenize_table().fields(); }

}  // namespace

const Endpoint kDetokenizeEndpoint = {.method = "POST",
                                      .path = "/detokenize",
                                      .summary = "Convert token ids to text",
                                      .fields = detokenize_fields};

DetokenizeRequest parse_detokenize(std::string_view body, const RequestLimits& limits) {
  DetokenizeRequest request;
  detokenize_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  check_ids("tokens", request.tokens, limits.vocab_size);
  return request;
}

}  // namespace trireme
