// Filters of Jinja2 that chat templates use.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "engine/core/error.h"
#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/case_mapping.h"
#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/nodes.h"
#include "engine/text/jinja/numbers.h"
#include "engine/text/jinja/text_tools.h"

namespace trireme::jinja {
namespace {

const std::string kDot = ".", kComma = ",";

// Member by a path "a.b.0" or a number; if one is missing, the fallback, if any.
Value member(Renderer& r, Value v, const Value& path, const Value* fallback) {
  const auto step = [&](const Value& name, bool number) {
    if (v.is_undefined())
      fail(concat("\"", v.undefined_name(), "\" is undefined, so it has no \"", text_of(name),
                  "\""));
    const Value found = item_of(v, name);
    v = !found.is_undefined() || number || v.dict() ? found : attribute_of(r, v, *name.string());
    if (v.is_undefined() && fallback != nullptr) v = *fallback;
  };
  int64_t i = 0;
  if (path.to_integer(i)) return step(path, true), v;
  for (const Value& name : split_text(text_in(path, "an attribute"), &kDot, -1, false)) {
    const std::string& text = *name.string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), i);
    const bool number = error == std::errc() && end == text.data() + text.size() && i >= 0;
    step(number ? Value(i) : name, number);
  }
  return v;
}

// Arguments after the first n.
Arguments behind(const Arguments& a, size_t n) {
  Arguments out;
  for (size_t i = n; i < a.positional.size(); ++i) out.positional.push_back(a.positional[i]);
  out.named = a.named;
  return out;
}

// For a false value, including none, map, select and similar return an empty list.
Value map_filter(Renderer& r, const Value& v, const Arguments& a) {
  List out;
  if (!v.truth()) return out;
  if (const Value* path = a.find(SIZE_MAX, "attribute")) {
    const Value* fallback = a.find(SIZE_MAX, "default");
    for (const Value& item : elements_of(v)) out.push_back(member(r, item, *path, fallback));
    return out;
  }
  if (a.positional.empty()) fail("map expects a filter or an attribute");
  const Filter filter = find_filter(text_in(a.positional[0], "map"));
  if (filter == nullptr)
    fail(concat("the filter \"", *a.positional[0].string(), "\" is not supported"));
  const Arguments given = behind(a, 1);
  check_filter_arguments(*a.positional[0].string(), given);
  for (const Value& item : elements_of(v)) {
    r.step();
    out.push_back(filter(r, item, given));
  }
  return out;
}

// select, reject and their variants by an attribute, whose name is the first argument.
Value selected(Renderer& r, const Value& v, const Arguments& a, bool by_attribute, bool wanted) {
  if (!v.truth()) return List();
  const size_t at = by_attribute ? 1 : 0;
  if (by_attribute && a.positional.empty()) fail("selectattr and rejectattr expect an attribute");
  Test test = nullptr;
  if (a.positional.size() > at) {
    test = find_test(text_in(a.positional[at], "select"));
    if (test == nullptr)
      fail(concat("the test \"", *a.positional[at].string(), "\" is not supported"));
  }
  List out;
  for (const Value& item : elements_of(v)) {
    r.step();
    const Value what = by_attribute ? member(r, item, a.positional[0], nullptr) : item;
    const bool holds = test != nullptr ? test(what, behind(a, at + 1)) : what.truth();
    if (holds == wanted) out.push_back(item);
  }
  return out;
}

// Sort key of an element: itself or a member; strings in lower case unless case matters.
Value key_of(Renderer& r, const Value& item, const Value* path, bool case_sensitive,
             const Value* fallback = nullptr) {
  const Value key = path != nullptr && !path->is_none() ? member(r, item, *path, fallback) : item;
  return !case_sensitive && key.string() ? Value(lower_text(text_of(key))) : key;
}

// The same for several members, "a,b".
Value keys_of(Renderer& r, const Value& item, const Value* paths, bool case_sensitive) {
  if (paths == nullptr || paths->string() == nullptr) return key_of(r, item, paths, case_sensitive);
  List keys;
  for (const Value& path : split_text(*paths->string(), &kComma, -1, false))
    keys.push_back(key_of(r, item, &path, case_sensitive));
  return keys;
}

Value sort_filter(Renderer& r, const Value& v, const Arguments& a) {
  List out = elements_of(v);
  const Value* path = a.find(2, "attribute");
  const bool sensitive = flag_at(a, 1, "case_sensitive", false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : out) keyed.emplace_back(keys_of(r, item, path, sensitive), item);
  const bool reverse = flag_at(a, 0, "reverse", false);
  // Equal keys are not ordered further, so that equal values need no order.
  const auto before = [](const Value& x, const Value& y) { return !equal(x, y) && less(x, y); };
  std::ranges::stable_sort(keyed, [&](const auto& x, const auto& y) {
    return reverse ? before(y.first, x.first) : before(x.first, y.first);
  });
  for (size_t i = 0; i < out.size(); ++i) out[i] = keyed[i].second;
  return out;
}

Value dictsort_filter(Renderer&, const Value& v, const Arguments& a) {
  if (v.dict() == nullptr) fail("dictsort expects a dict");
  const Value* by = a.find(1, "by");
  const bool by_value = by != nullptr && by->string() && *by->string() == "value";
  const bool sensitive = flag_at(a, 0, "case_sensitive", false),
             reverse = flag_at(a, 2, "reverse", false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : v.dict()->items()) {
    const Value k = by_value ? item : Value(key);
    keyed.emplace_back(!sensitive && k.string() ? Value(lower_text(*k.string())) : k,
                       tuple_of({key, item}));
  }
  std::ranges::stable_sort(keyed, [&](const auto& x, const auto& y) {
    return reverse ? less(y.first, x.first) : less(x.first, y.first);
  });
  List out;
  for (auto& [key, pair] : keyed) out.push_back(std::move(pair));
  return out;
}

// Groups elements by a common member, ordered by it.
Value groupby_filter(Renderer& r, const Value& v, const Arguments& a) {
  const Value *path = a.find(0, "attribute"), *fallback = a.find(1, "default");
  if (path == nullptr) fail("groupby expects an attribute");
  if (fallback != nullptr && fallback->is_none()) fallback = nullptr;
  const bool sensitive = flag_at(a, 2, "case_sensitive", false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : elements_of(v))
    keyed.emplace_back(key_of(r, item, path, sensitive, fallback), item);
  std::ranges::stable_sort(keyed,
                           [](const auto& x, const auto& y) { return less(x.first, y.first); });
  List out;
  for (size_t i = 0; i < keyed.size();) {
    const size_t first = i;
    List items;
    do items.push_back(keyed[i].second);
    while (++i < keyed.size() && equal(keyed[i].first, keyed[first].first));
    const Value name = member(r, items[0], *path, fallback);
    out.emplace_back(Tuple{.items = held(List{name, std::move(items)}), .is_group = true});
  }
  return out;
}

// Lists of linecount elements, the last one padded.
Value batch_filter(Renderer&, const Value& v, const Arguments& a) {
  const int64_t each = integer_at(a, 0, "linecount", 0);
  const Value* fill = a.find(1, "fill_with");
  if (each < 1) fail("batch expects the number of elements of a list");
  List out, now;
  for (const Value& item : elements_of(v)) {
    if (std::ssize(now) == each) out.emplace_back(std::exchange(now, {}));
    now.push_back(item);
  }
  if (fill != nullptr && !fill->is_none() && !now.empty()) {
    spend(each - std::ssize(now));
    now.resize(static_cast<size_t>(each), *fill);
  }
  if (!now.empty()) out.emplace_back(std::move(now));
  return out;
}

// `slices` lists of nearly equal length, the shorter ones padded.
Value slice_filter(Renderer&, const Value& v, const Arguments& a) {
  const int64_t lists = integer_at(a, 0, "slices", 0);
  const Value* fill = a.find(1, "fill_with");
  if (lists < 1) fail("slice expects the number of lists");
  spend(lists);
  const List items = elements_of(v);
  const int64_t each = std::ssize(items) / lists, longer = std::ssize(items) % lists;
  List out;
  for (int64_t i = 0, at = 0; i < lists; ++i) {
    const int64_t end = at + each + (i < longer ? 1 : 0);
    List part(items.begin() + at, items.begin() + end);
    if (fill != nullptr && !fill->is_none() && i >= longer) part.push_back(*fill);
    out.emplace_back(std::move(part));
    at = end;
  }
  return out;
}

Value attr_filter(Renderer& r, const Value& v, const Arguments& a) {
  const std::string& name = text_at(a, 0, "name", "attr");
  if (v.is_undefined())
    fail(concat("\"", v.undefined_name(), "\" is undefined, so it has no \"", name, "\""));
  const Value found = attribute_of(r, v, name);
  return v.dict() && !found.function() ? Value(Undefined{name}) : found;  // keys are no attributes
}

Value format_filter(Renderer& r, const Value& v, const Arguments& a) {
  if (!a.positional.empty() && !a.named.empty())
    fail("format takes positional or keyword arguments, not both");
  if (a.named.empty()) return percent_formatted(r, text_of(v), tuple_of(a.positional));
  Dict named;
  for (const auto& [name, value] : a.named) named[name] = value;
  return percent_formatted(r, text_of(v), named);
}

Value truncate_filter(Renderer&, const Value& v, const Arguments& a) {
  const std::string s = v.list() || v.dict() || v.is_undefined() ? "" : text_in(v, "truncate");
  const Value* end = a.find(2, "end");
  const std::string mark = end != nullptr ? text_of(*end) : "...";
  const int64_t length = integer_at(a, 0, "length", 255), leeway = integer_at(a, 3, "leeway", 5),
                kept = length - length_of(mark);
  if (kept < 0 || leeway < 0)
    fail("truncate expects a length of at least its end mark, and a leeway of at least 0");
  const int64_t size = v.list()   ? std::ssize(*v.list())
                       : v.dict() ? static_cast<int64_t>(v.dict()->size())
                                  : length_of(s);
  if (size - leeway <= length) return v;
  (void)text_in(v, "truncate");
  std::string text = slice_of(s, 0, kept, 1);
  if (!flag_at(a, 1, "killwords", false)) text = text.substr(0, text.rfind(' '));
  return text + mark;
}

Value tojson_filter(Renderer& r, const Value& v, const Arguments& a) {
  JsonStyle style;
  style.ascii = flag_at(a, 0, "ensure_ascii", false);
  style.indent = static_cast<int>(std::clamp<int64_t>(integer_at(a, 1, "indent", -1), -1, 64));
  if (style.indent >= 0) style.item = ",";  // a line ends after each item
  if (const Value* separators = a.find(2, "separators");
      separators != nullptr && separators->list() && separators->list()->size() == 2) {
    style.item = text_in((*separators->list())[0], "tojson");
    style.key = text_in((*separators->list())[1], "tojson");
  }
  style.sort_keys = flag_at(a, 3, "sort_keys", false);
  std::string out = json_of(v, style);
  r.check_size(std::ssize(out));
  return out;
}

Value indent_filter(Renderer& r, const Value& v, const Arguments& a) {
  const Value* width = a.find(0, "width");
  const std::string by =
      width != nullptr && width->string()
          ? *width->string()
          : std::string(
                static_cast<size_t>(std::clamp<int64_t>(integer_at(a, 0, "width", 4), 0, 1024)),
                ' ');
  const bool first = flag_at(a, 1, "first", false), blank = flag_at(a, 2, "blank", false);
  std::string out;
  const List lines = lines_of(text_in(v, "indent") + '\n');  // with the last line, even if empty
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = *lines[i].string();
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !line.empty()) out += by;
    out += line;
    r.check_size(std::ssize(out));
  }
  return out;
}

Value round_filter(Renderer&, const Value& v, const Arguments& a) {
  double d = 0;
  if (!v.to_real(d)) fail(concat("round expects a number, not a ", type_name(v)));
  const Value* method = a.find(1, "method");
  const std::string how = method != nullptr && method->string() ? *method->string() : "common";
  int64_t whole = 0;
  if (how == "common" && v.to_integer(whole) && integer_at(a, 0, "precision", 0) >= 0) return whole;
  const double unit = std::pow(
      10.0, static_cast<double>(std::clamp<int64_t>(integer_at(a, 0, "precision", 0), -300, 300)));
  if (how == "ceil") return std::ceil(d * unit) / unit;
  if (how == "floor") return std::floor(d * unit) / unit;
  return std::nearbyint(d * unit) / unit;
}

Value extreme(Renderer& r, const Value& v, const Arguments& a, bool largest) {
  const List items = elements_of(v);
  if (items.empty()) return Undefined{"the minimum or maximum of an empty list"};
  const Value* path = a.find(1, "attribute");
  const bool sensitive = flag_at(a, 0, "case_sensitive", false);
  const auto key = [&](const Value& item) { return key_of(r, item, path, sensitive); };
  const Value* best = &items[0];
  for (size_t i = 1; i < items.size(); ++i)
    if (largest ? less(key(*best), key(items[i])) : less(key(items[i]), key(*best)))
      best = &items[i];
  return *best;
}

Value sum_filter(Renderer& r, const Value& v, const Arguments& a) {
  const Value* path = a.find(0, "attribute");
  const Value* start = a.find(1, "start");
  Value total = start != nullptr ? *start : Value(int64_t{0});
  for (const Value& item : elements_of(v))
    total = calculate(r, "+", total,
                      path != nullptr && !path->is_none() ? member(r, item, *path, nullptr) : item);
  return total;
}

Value unique_filter(Renderer& r, const Value& v, const Arguments& a) {
  const bool sensitive = flag_at(a, 0, "case_sensitive", false);
  const Value* path = a.find(1, "attribute");
  List out, keys;
  for (const Value& item : elements_of(v)) {
    const Value key = key_of(r, item, path, sensitive);
    if (std::ranges::any_of(keys, [&](const Value& known) { return equal(known, key); })) continue;
    keys.push_back(key);
    out.push_back(item);
  }
  return out;
}

std::string escaped(const std::string& s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

Value items_filter(Renderer&, const Value& v, const Arguments&) {
  List out;
  if (v.is_undefined()) return out;
  if (v.dict() == nullptr) fail(concat("items expects a dict, not a ", type_name(v)));
  spend(2 * std::ssize(v.dict()->items()));
  for (const auto& [key, item] : v.dict()->items()) out.push_back(tuple_of({key, item}));
  return out;
}

// Like urllib.parse.quote(); "/" is kept in a text, and a space is "+" in names and values.
std::string quoted_for_url(const std::string& s, bool is_text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  spend_bytes(s.size());
  std::string out;
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      (c == '/' && is_text) || c == '-' || c == '.' || c == '_' || c == '~' ||
                      c == kMark;
    if (kept)
      out += c;
    else if (c == ' ' && !is_text)
      out += '+';
    else
      out += {'%', kDigits[byte / 16], kDigits[byte % 16]};
  }
  return out;
}

// A quoted text; or name=value for each pair of a dict or list, joined by "&".
Value urlencode_filter(Renderer& r, const Value& v, const Arguments&) {
  if (v.dict() == nullptr && v.list() == nullptr) return quoted_for_url(text_of(v), true);
  const Value pairs = v.dict() != nullptr ? items_filter(r, v, {}) : v;
  std::string out;
  for (const Value& item : elements_of(pairs)) {
    const List pair = elements_of(item);
    if (pair.size() != 2) fail("urlencode expects a text, a dict or pairs");
    out += concat(out.empty() ? "" : "&", quoted_for_url(text_of(pair[0]), false), '=',
                  quoted_for_url(text_of(pair[1]), false));
    r.check_size(std::ssize(out));
  }
  return out;
}

Value length_filter(Renderer&, const Value& v, const Arguments&) {
  if (v.string()) return length_of(*v.string());
  if (v.list()) return std::ssize(*v.list());
  if (v.dict()) return static_cast<int64_t>(v.dict()->size());
  if (v.is_undefined()) return int64_t{0};
  fail(concat("a ", type_name(v), " has no length"));
}

Value default_filter(Renderer&, const Value& v, const Arguments& a) {
  const Value* fallback = a.find(0, "default_value");
  const bool replaced = v.is_undefined() || (flag_at(a, 1, "boolean", false) && !v.truth());
  return !replaced ? v : fallback != nullptr ? *fallback : Value("");
}

Value trim_filter(Renderer&, const Value& v, const Arguments& a) {
  return stripped(text_of(v), text_or_none(a, 0, "chars"), true, true);
}

Value join_filter(Renderer& r, const Value& v, const Arguments& a) {
  const Value* between = a.find(0, "d");
  const Value* path = a.find(1, "attribute");
  List items = elements_of(v);
  if (path != nullptr && !path->is_none())
    for (Value& item : items) item = member(r, item, *path, nullptr);
  return joined_text(r, items, between != nullptr ? text_of(*between) : "");
}

Value replace_filter(Renderer& r, const Value& v, const Arguments& a) {
  const Value *from = a.find(0, "old"), *to = a.find(1, "new");
  if (from == nullptr || to == nullptr) fail("replace expects two strings");
  return replaced_text(r, text_of(v), text_of(*from), text_of(*to), integer_at(a, 2, "count", -1));
}

Value list_filter(Renderer&, const Value& v, const Arguments&) { return elements_of(v); }

Value reverse_filter(Renderer&, const Value& v, const Arguments&) {
  if (v.string()) return slice_of(*v.string(), INT64_MIN, INT64_MIN, -1);
  List out = elements_of(v);
  std::ranges::reverse(out);
  return out;
}

Value end_of(const Value& v, bool first) {
  const List items = elements_of(v);
  if (items.empty()) return Undefined{"an element of an empty list"};
  return first ? items.front() : items.back();
}

Value abs_filter(Renderer&, const Value& v, const Arguments&) {
  int64_t i = 0;
  double d = 0;
  if (v.to_integer(i) && i != INT64_MIN) return i < 0 ? -i : i;
  if (!v.to_real(d)) fail(concat("abs expects a number, not a ", type_name(v)));
  return std::fabs(d);
}

#define TRIREME_FILTER(body)                                     \
  [](Renderer& r, const Value& v, const Arguments& a) -> Value { \
    (void)r, (void)a;                                            \
    return body;                                                 \
  }
const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> kFilters = {
      {"abs", abs_filter},
      {"attr", attr_filter},
      {"batch", batch_filter},
      {"capitalize", TRIREME_FILTER(capitalized(text_of(v)))},
      {"center",
       TRIREME_FILTER(padded(r, text_of(v), integer_at(a, 0, "width", 80), " ", '^', true))},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort_filter},
      {"e", TRIREME_FILTER(escaped(text_of(v)))},
      {"escape", TRIREME_FILTER(escaped(text_of(v)))},
      {"first", TRIREME_FILTER(end_of(v, true))},
      {"float", float_filter},
      {"forceescape", TRIREME_FILTER(escaped(text_of(v)))},
      {"format", format_filter},
      {"groupby", groupby_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", TRIREME_FILTER(end_of(v, false))},
      {"length", length_filter},
      {"list", list_filter},
      {"lower", TRIREME_FILTER(lower_text(text_of(v)))},
      {"map", map_filter},
      {"max", TRIREME_FILTER(extreme(r, v, a, true))},
      {"min", TRIREME_FILTER(extreme(r, v, a, false))},
      {"reject", TRIREME_FILTER(selected(r, v, a, false, false))},
      {"rejectattr", TRIREME_FILTER(selected(r, v, a, true, false))},
      {"replace", replace_filter},
      {"reverse", reverse_filter},
      {"round", round_filter},
      {"safe", TRIREME_FILTER(text_of(v))},
      {"select", TRIREME_FILTER(selected(r, v, a, false, true))},
      {"selectattr", TRIREME_FILTER(selected(r, v, a, true, true))},
      {"slice", slice_filter},
      {"sort", sort_filter},
      {"string", TRIREME_FILTER(text_of(v))},
      {"sum", sum_filter},
      {"title", TRIREME_FILTER(words_capitalized(text_of(v)))},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"truncate", truncate_filter},
      {"unique", unique_filter},
      {"upper", TRIREME_FILTER(upper_case(text_of(v)))},
      {"urlencode", urlencode_filter},
      {"wordcount", TRIREME_FILTER(words_in(text_of(v)))},
  };
  return kFilters;
}
#undef TRIREME_FILTER

}  // namespace

Filter find_filter(const std::string& name) {
  const auto found = filters().find(name);
  return found == filters().end() ? nullptr : found->second;
}

}  // namespace trireme::jinja
