#include "serving/api/endpoints/lora_adapters.h"

#include "serving/api/field_table.h"

namespace trireme {
namespace {

FieldTable<AdapterRequest> adapter_table(bool loads) {
  using R = AdapterRequest;
  FieldTable<R> t;
  t.string("lora_name", &R::name, "Model id that requests name to use the adapter.")
      .size_range(1, 512)
      .required();
  if (loads) {
    t.string("lora_path", &R::path, "Path of a PEFT adapter directory on the server.")
        .size_range(1, 4096)
        .required();
  }
  t.add_peer_fields(loads ? 'l' : 'u');
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

// Names and paths are logged, and names are listed in a metric's label.
void check_words(const char* field, const std::string& words, bool listed) {
  for (const char c : words)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || (listed && c == ','))
      fail_field(field, field, " must have no control characters", listed ? " and no commas" : "");
}

std::span<const Field> load_adapter_fields() { return load_adapter_table().fields(); }
std::span<const Field> unload_adapter_fields() { return unload_adapter_table().fields(); }

}  // namespace

const Endpoint kLoadAdapterEndpoint = {.method = "POST",
                                       .path = "/v1/load_lora_adapter",
                                       .access = Access::kAdmin,
                                       .summary = "Load an adapter (administrators)",
                                       .fields = load_adapter_fields,
                                       .content_type = "text/plain; charset=utf-8",
                                       .conflict = "Weights or another adapter are being loaded."};

const Endpoint kUnloadAdapterEndpoint = {.method = "POST",
                                         .path = "/v1/unload_lora_adapter",
                                         .access = Access::kAdmin,
                                         .summary = "Unload an adapter (administrators)",
                                         .fields = unload_adapter_fields,
                                         .content_type = "text/plain; charset=utf-8"};

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

}  // namespace trireme
