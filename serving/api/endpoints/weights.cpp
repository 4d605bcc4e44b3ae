#include "serving/api/endpoints/weights.h"

#include "serving/api/field_table.h"

namespace trireme {
namespace {

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

std::span<const Field> weights_fields() { return weights_table().fields(); }

}  // namespace

const Endpoint kReplaceWeightsEndpoint = {
    .method = "POST",
    .path = "/admin/weights",
    .access = Access::kAdmin,
    .summary = "Other weights for the model, with an admin's key",
    .fields = weights_fields,
    .conflict = "Weights are being replaced already."};

const Endpoint kServedWeightsEndpoint = {.method = "GET",
                                         .path = "/admin/weights",
                                         .access = Access::kAdmin,
                                         .summary = "The weights that are served"};

WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits) {
  WeightsRequest request;
  weights_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  return request;
}

}  // namespace trireme
