#include "training/config/data_path.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr const char* kForms =
    "expected a prefix, a list [weight, prefix, ...], or a string \"weight prefix ...\"";

bool as_number(const std::string& word, double& out) {
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), out);
  return problem == std::errc() && end == word.data() + word.size() && std::isfinite(out);
}

// Reads a list item that is a number, or a number as a string.
bool item_number(const Json& item, double& out) {
  if (item.is_string()) return as_number(item.get<std::string>(), out);
  if (!item.is_number()) return false;
  out = item.get<double>();
  return true;
}

std::string without_suffix(std::string prefix) {
  for (const char* suffix : {".bin", ".idx"})
    if (prefix.size() > 4 && prefix.ends_with(suffix)) return prefix.substr(0, prefix.size() - 4);
  return prefix;
}

Json words_of(const std::string& text_value) {
  Json words = Json::array();
  std::istringstream stream(text_value);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Error in the name of a validation set; "" if the name is valid.
std::string name_problem(const std::string& name) {
  constexpr size_t kLongest = 64;
  const bool fit = std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
  if (name.empty()) return "has a set with an empty name; give it one";
  const std::string quoted = shown(Json(name));
  if (!fit || name.size() > kLongest)
    return concat("the set name ", quoted, " is not valid: expected at most ", kLongest,
                  " letters, digits, '_', '-' and '.'");
  if (name == "test")
    return concat("the set name ", quoted, " is reserved for data.test_data_path; use another");
  return "";
}

}  // namespace

std::vector<BlendPart> read_data_path(const Json& value, const std::string& path,
                                      ConfigReport& report) {
  if (value.is_null()) return {};
  const Json items = value.is_string() ? words_of(value.get<std::string>()) : value;
  const auto fail = [&](const std::string& message) {
    report.error(path, concat(message, ", got ", shown(value)));
    return std::vector<BlendPart>();
  };
  if (!items.is_array() || items.empty()) return fail(kForms);
  if (items.size() == 1 && items[0].is_string() && !items[0].get<std::string>().empty())
    return {{1.0, without_suffix(items[0].get<std::string>())}};
  if (items.size() % 2 != 0) return fail("expected a weight before each prefix");
  std::vector<BlendPart> parts;
  double sum = 0;
  for (size_t i = 0; i < items.size(); i += 2) {
    double weight = 0;
    if (!item_number(items[i], weight)) return fail("expected a weight before each prefix");
    if (!(weight > 0)) return fail("expected weights above 0");
    if (!items[i + 1].is_string() || items[i + 1].get<std::string>().empty()) return fail(kForms);
    parts.push_back({weight, without_suffix(items[i + 1].get<std::string>())});
    sum += weight;
  }
  if (!std::isfinite(sum)) return fail("expected weights with a finite sum in float64");
  // With a smaller fraction a part would get no sample of the largest possible number of samples.
  for (const BlendPart& part : parts)
    if (part.weight / sum < 0x1p-62)
      return fail(
          concat("expected no negligible weight, but one is ", part.weight, " in a sum of ", sum));
  return parts;
}

Json data_path_to_json(const std::vector<BlendPart>& parts) {
  if (parts.empty()) return nullptr;
  Json list = Json::array();
  for (const BlendPart& part : parts) {
    list.push_back(part.weight);
    list.push_back(part.prefix);
  }
  return list;
}

std::vector<ValidationSet> read_validation_sets(const Json& value, const std::string& path,
                                                ConfigReport& report) {
  std::vector<ValidationSet> sets;
  if (!value.is_object()) {
    if (std::vector<BlendPart> parts = read_data_path(value, path, report); !parts.empty())
      sets.push_back({"", std::move(parts)});
    return sets;
  }
  if (value.empty())
    report.error(path, "is an empty object, expected at least one set; use null for none");
  for (const auto& [name, files] : value.items()) {
    if (const std::string problem = name_problem(name); !problem.empty()) {
      report.error(path, problem);
      continue;
    }
    const std::string place = concat(path, ".", name);
    if (files.is_null()) report.error(place, concat(kForms, ", got null"));
    sets.push_back({name, read_data_path(files, place, report)});
  }
  return sets;
}

Json validation_sets_to_json(const std::vector<ValidationSet>& sets) {
  if (sets.empty()) return nullptr;
  if (sets.front().name.empty()) return data_path_to_json(sets.front().parts);
  Json named = Json::object();
  for (const ValidationSet& set : sets) named[set.name] = data_path_to_json(set.parts);
  return named;
}

std::string read_split(const std::string& split, std::array<double, 3>& weights) {
  std::string rule = "expected up to three numbers, none negative and not all 0, such as 969,30,1";
  weights = {};
  double sum = 0;
  size_t count = 0;
  std::istringstream stream(split);
  for (std::string word; std::getline(stream, word, ',');) {
    const size_t begin = word.find_first_not_of(' ');
    if (begin == std::string::npos || count == weights.size()) return rule;
    double& part = weights[count++];
    if (!as_number(word.substr(begin, word.find_last_not_of(' ') + 1 - begin), part) || part < 0)
      return rule;
    sum += part;
  }
  return sum > 0 && std::isfinite(sum) ? "" : rule;
}

}  // namespace trireme
