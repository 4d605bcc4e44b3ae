#include "serving/structured/schema_candidates.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme {
namespace {

constexpr int kMaxCandidateSteps = 1000, kMaxCandidateDepth = 32;
constexpr double kMaxCandidateInteger = 1e15;

class CandidateSearch {
 public:
  CandidateSearch(const SchemaFinder& find, CandidateSource source, size_t max_count)
      : find_(find), by_types_(source == CandidateSource::kTypes), max_count_(max_count) {}

  std::optional<Schema> values_of(const Schema& schema, int depth) {
    if (depth > kMaxCandidateDepth || ++steps_ > kMaxCandidateSteps) return {};
    if (schema == false) return Schema::array();
    if (!schema.is_object()) return {};
    if (schema.contains("enum")) return within_count(schema["enum"]);
    if (schema.contains("const")) return Schema::array({schema["const"]});
    std::optional<Schema> values = narrowest(schema, depth);
    if (values && schema.contains("nullable") && schema["nullable"] == true)
      values->push_back(nullptr);
    return values;
  }

 private:
  std::optional<Schema> within_count(const Schema& values) const {
    if (!values.is_array() || values.size() > max_count_) return {};
    return values;
  }

  // First set found; each contains all values.
  std::optional<Schema> narrowest(const Schema& s, int depth) {
    if (by_types_ && s.contains("type"))
      if (auto values = values_of_types(s)) return values;
    if (s.contains("$ref") && s["$ref"].is_string())
      if (auto values = values_of(find_(s["$ref"].get<std::string>()), depth + 1)) return values;
    if (s.contains("allOf") && s["allOf"].is_array())
      for (const Schema& one : s["allOf"])
        if (auto values = values_of(one, depth + 1)) return values;
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!by_types_ || !s.contains(name) || !s[name].is_array()) continue;
      if (auto values = values_of_any(s[name], depth)) return values;
    }
    return {};
  }

  std::optional<Schema> values_of_any(const Schema& schemas, int depth) {
    Schema all = Schema::array();
    for (const Schema& one : schemas) {
      const std::optional<Schema> values = values_of(one, depth + 1);
      if (!values) return {};
      for (const Schema& value : *values) all.push_back(value);
    }
    return within_count(all);
  }

  std::optional<Schema> values_of_types(const Schema& s) const {
    Schema all = Schema::array();
    for (const Schema& type : s["type"].is_array() ? s["type"] : Schema::array({s["type"]})) {
      if (type == "null") {
        all.push_back(nullptr);
      } else if (type == "boolean") {
        all.push_back(true);
        all.push_back(false);
      } else if (type != "integer" || !add_integers(s, all)) {
        return {};
      }
    }
    return within_count(all);
  }

  bool add_integers(const Schema& s, Schema& all) const {
    std::array<double, 2> bounds = {-2 * kMaxCandidateInteger, 2 * kMaxCandidateInteger};
    for (const char* name : {"minimum", "exclusiveMinimum"})
      if (s.contains(name) && s[name].is_number())
        bounds[0] = std::max(bounds[0], std::ceil(s[name].get<double>()));
    for (const char* name : {"maximum", "exclusiveMaximum"})
      if (s.contains(name) && s[name].is_number())
        bounds[1] = std::min(bounds[1], std::floor(s[name].get<double>()));
    if (bounds[0] < -kMaxCandidateInteger || bounds[1] > kMaxCandidateInteger ||
        bounds[1] - bounds[0] >= static_cast<double>(max_count_))
      return false;
    for (auto n = static_cast<int64_t>(bounds[0]); n <= static_cast<int64_t>(bounds[1]); ++n)
      all.push_back(n);
    return true;
  }

  const SchemaFinder& find_;
  const bool by_types_;
  const size_t max_count_;
  int steps_ = 0;
};

}  // namespace

std::optional<Schema> candidate_values(const Schema& schema, const SchemaFinder& find,
                                       CandidateSource source, size_t max_count) {
  return CandidateSearch(find, source, max_count).values_of(schema, 0);
}

}  // namespace trireme
