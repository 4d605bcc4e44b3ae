#include "serving/api/endpoints/weights.h"

#include "serving/api/field_table.h"

namespace trireme {
namespace {

const FieldTable<WeightsRequest>& weights_table() {
  static const FieldTable<WeightsRequest> made = [] {
    using R = WeightsRequest;
    FieldTable<R> t;
    t.string("model", &R::model,
             "Path on the server, as for --model; for a run its newest complete checkpoint. "
             "Absent: the path that is served.")
        .size_range(1, 4096);
    t.other(
         "mode", FieldKind::kString, "\"wait\"", "",
         "Handling of running and waiting requests: wait (they finish first), abort (they fail), "
         "or keep (they continue with the new weights and the old weights' keys and values).",
         [](R& r, const ApiJson& v, const Field& f) { r.mode = read_string(f, v); })
        .one_of({"wait", "abort", "keep"});
    return t;
  }();
  return made;
}

std::span<const Field> weights_fields() { return weights_table().fields(); }

}  // namespace

const Endpoint kReplaceWeightsEndpoint = {.method = "POST",
                                          .path = "/admin/weights",
                                          .access = Access::kAdmin,
                                          .summary = "Replace the model's weights (administrators)",
                                          .fields = weights_fields,
                                          .conflict = "The weights are already being replaced."};

const Endpoint kServedWeightsEndpoint = {.method = "GET",
                                         .path = "/admin/weights",
                                         .access = Access::kAdmin,
                                         .summary = "Show the served weights (administrators)"};

WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits) {
  WeightsRequest request;
  weights_table().read(parse_body(body, limits.json_depth), request, request.unknown);
  return request;
}

}  // namespace trireme
