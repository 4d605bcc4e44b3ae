#include "serving/api/openapi.h"

#include <cmath>
#include <string_view>

#include "serving/api/endpoint.h"
#include "serving/api/field_table.h"

namespace trireme {
namespace {

const char* type_of(FieldKind kind) {
  switch (kind) {
    case FieldKind::kBoolean: return "boolean";
    case FieldKind::kInteger: return "integer";
    case FieldKind::kNumber: return "number";
    case FieldKind::kString: return "string";
    case FieldKind::kObject: return "object";
    case FieldKind::kArray: return "array";
    case FieldKind::kOther: return nullptr;
  }
  return nullptr;
}

ApiJson bound(double value) {
  if (value == std::floor(value)) return static_cast<int64_t>(value);
  return value;
}

ApiJson schema_of(const Field& field) {
  ApiJson schema = field.shape.empty() ? ApiJson::object() : ApiJson::parse(field.shape);
  if (type_of(field.kind) != nullptr) schema["type"] = {type_of(field.kind), "null"};
  if (std::isfinite(field.min)) schema["minimum"] = bound(field.min);
  if (std::isfinite(field.max)) schema["maximum"] = bound(field.max);
  if (!field.words.empty()) {
    schema["enum"] = field.words;
    schema["enum"].push_back(nullptr);
  }
  const bool is_string = field.kind == FieldKind::kString;
  if (field.min_size > 0 && field.kind != FieldKind::kObject)
    schema[is_string ? "minLength" : "minItems"] = field.min_size;
  if (!field.default_json.empty()) schema["default"] = ApiJson::parse(field.default_json);
  schema["description"] = field.help;
  return schema;
}

ApiJson request_schema(const Endpoint& endpoint) {
  ApiJson properties = ApiJson::object(), required = ApiJson::array();
  for (const Field& field : endpoint.fields()) {
    if (field.status != FieldStatus::kRead && field.status != FieldStatus::kIgnored) continue;
    properties[field.name] = schema_of(field);
    if (field.is_required) required.push_back(field.name);
  }
  ApiJson schema = {{"type", "object"}, {"properties", properties}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

ApiJson response(const char* description, const char* type) {
  return {{"description", description}, {"content", {{type, {{"schema", ApiJson::object()}}}}}};
}

ApiJson error_response(const char* description) {
  return {
      {"description", description},
      {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
}

constexpr const char* kAdminNeeded = "The key is not an administrator's.";

ApiJson post_operation(const Endpoint& endpoint) {
  ApiJson responses = {{"200", response("Successful response.", endpoint.content_type)}};
  if (endpoint.streams)
    responses["200"]["content"]["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  for (const auto& [status, why] :
       {std::pair("400", "Invalid request; `param` names the field."),
        std::pair("401", "Missing or wrong API key."), std::pair("404", "Unknown model."),
        std::pair("413", "The body is too large."), std::pair("415", "The body is not JSON."),
        std::pair("429", "The queue is full; Retry-After gives the seconds to wait."),
        std::pair("500", "Internal server error."),
        std::pair("501", "The request needs a feature that this server does not support."),
        std::pair("503", "The server is full, loading, draining or has failed.")})
    responses[status] = error_response(why);
  if (endpoint.access == Access::kAdmin) responses["403"] = error_response(kAdminNeeded);
  if (*endpoint.conflict != '\0') responses["409"] = error_response(endpoint.conflict);
  ApiJson operation = {{"summary", endpoint.summary}};
  if (endpoint.fields != nullptr)
    operation["requestBody"] = {
        {"required", true},
        {"content", {{"application/json", {{"schema", request_schema(endpoint)}}}}}};
  operation["responses"] = responses;
  return operation;
}

ApiJson get_operation(const Endpoint& endpoint) {
  ApiJson operation = {
      {"summary", endpoint.summary},
      {"responses", {{"200", response("Successful response.", endpoint.content_type)}}}};
  if (endpoint.access == Access::kOpen)
    operation["security"] = ApiJson::array();
  else
    operation["responses"]["401"] = error_response("Missing or wrong API key.");
  if (endpoint.access == Access::kAdmin || endpoint.access == Access::kMetrics)
    operation["responses"]["403"] = error_response(kAdminNeeded);
  return operation;
}

ApiJson error_schema() {
  const ApiJson text_or_null = {{"type", {"string", "null"}}};
  return {{"type", "object"},
          {"required", {"error"}},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"required", {"message", "type", "param", "code"}},
              {"properties",
               {{"message", {{"type", "string"}}},
                {"type", {{"type", "string"}}},
                {"param", text_or_null},
                {"code", text_or_null}}}}}}}};
}

}  // namespace

std::string openapi_document(const std::string& version) {
  ApiJson paths = ApiJson::object();
  for (const Endpoint* endpoint : endpoints()) {
    if (*endpoint->summary == '\0') continue;
    ApiJson& path = paths[endpoint->path];
    if (endpoint->method == std::string_view("POST"))
      path["post"] = post_operation(*endpoint);
    else
      path["get"] = get_operation(*endpoint);
  }
  const ApiJson document = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "Trireme"}, {"version", version}}},
      {"paths", paths},
      {"components",
       {{"schemas", {{"Error", error_schema()}}},
        {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"security", {{{"key", ApiJson::array()}}}}};
  return document.dump();
}

}  // namespace trireme
