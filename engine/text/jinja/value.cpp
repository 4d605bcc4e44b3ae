#include "engine/text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/text/jinja/characters.h"
#include "engine/text/unicode.h"

namespace trireme::jinja {
namespace {

constexpr int kMaxDepth = 64;  // nesting of values that are printed or compared

// As Python prints it: the shortest form that reads back.
std::string real_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  const double size = std::fabs(d);
  const bool plain = d == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = plain ? std::to_chars(buffer, buffer + 64, d, std::chars_format::fixed).ptr
                         : std::to_chars(buffer, buffer + 64, d, std::chars_format::scientific).ptr;
  std::string out(buffer, end);
  if (plain && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string quoted(const std::string& s) {
  spend_bytes(s.size());
  const char quote =
      s.find('\'') != std::string::npos && s.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\\' || c == quote)
      out += {'\\', c};
    else if (byte < 0x20 || byte == 0x7F)
      out += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    else
      out += c;
  }
  return out += quote;
}

std::string shown(const Value& v, int depth) {
  if (depth > kMaxDepth) fail("a value is nested too deeply to be printed");
  spend(1);
  if (v.is_undefined()) return "Undefined";
  if (const std::string* s = v.string()) return quoted(*s);
  std::string out, between;
  if (const List* list = v.list()) {
    for (const Value& item : *list) {
      out += between + shown(item, depth + 1);
      between = ", ";
    }
    if (v.tuple() == nullptr) return concat('[', out, ']');
    return concat('(', out, list->size() == 1 ? ",)" : ")");
  }
  if (const Dict* dict = v.dict()) {
    for (const auto& [key, item] : dict->items()) {
      out += concat(between, quoted(key), ": ", shown(item, depth + 1));
      between = ", ";
    }
    return concat('{', out, '}');
  }
  return text_of(v);
}

void append_utf16(std::string& out, char32_t c) {
  const auto unit = [&](uint32_t u) {
    constexpr char kDigits[] = "0123456789abcdef";
    out +=
        {'\\', 'u', kDigits[u >> 12], kDigits[u >> 8 & 15], kDigits[u >> 4 & 15], kDigits[u & 15]};
  };
  if (c < 0x10000) return unit(c);
  unit(0xD800 + ((c - 0x10000) >> 10));
  unit(0xDC00 + ((c - 0x10000) & 0x3FF));
}

std::string json_string(const std::string& s, bool ascii) {
  spend_bytes(s.size());
  std::string out = "\"";
  constexpr char kDigits[] = "0123456789abcdef";
  for (size_t at = 0; at < s.size(); ++at) {
    const char c = s[at];
    const auto byte = static_cast<unsigned char>(c);
    if (ascii && byte >= 0x7F && c != kMark) {
      append_utf16(out, next_character(s, at));
      --at;
      continue;
    }
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (byte < 0x20)
          out += {'\\', 'u', '0', '0', kDigits[byte / 16], kDigits[byte % 16]};
        else
          out += c;
    }
  }
  return out += '"';
}

std::string joined(const std::vector<std::string>& parts, char open, char close,
                   const JsonStyle& style, int depth) {
  std::string out(1, open);
  const bool lines = style.indent >= 0 && !parts.empty();
  const auto line = [&](int level) {
    return "\n" + std::string(static_cast<size_t>(level * style.indent), ' ');
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += style.item;
    if (lines) out += line(depth + 1);
    out += parts[i];
  }
  if (lines) out += line(depth);
  return out += close;
}

std::vector<size_t> starts_of(const std::string& text) {
  spend_bytes(8 * text.size());
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at = next_place(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

// Positions that a slice selects of `size` elements.
std::vector<int64_t> slice_places(int64_t size, int64_t begin, int64_t end, int64_t step) {
  if (step == 0) fail("a slice has a step of 0");
  const auto clamp = [&](int64_t i, int64_t absent) {
    if (i == INT64_MIN) return absent;
    if (i < 0) i += size;
    return std::clamp<int64_t>(i, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
  };
  std::vector<int64_t> places;
  const int64_t from = clamp(begin, step > 0 ? 0 : size - 1), to = clamp(end, step > 0 ? size : -1);
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
    places.push_back(i);
    if (std::llabs(step) >= size) break;  // the next is out of range
  }
  return places;
}

}  // namespace

namespace {
// Nesting level of a comparison.
class Level {
 public:
  Level() {
    if (++t_levels > kMaxDepth) {
      --t_levels;
      fail("values are nested too deeply to be compared");
    }
  }
  ~Level() { --t_levels; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  static thread_local int t_levels;
};
thread_local int Level::t_levels = 0;
}  // namespace

void free_held(void* what, void (*free)(void*)) {
  constexpr int kMaxAtOnce = 64;
  thread_local int levels = 0;
  thread_local std::vector<std::pair<void*, void (*)(void*)>> waiting;
  if (levels == kMaxAtOnce) return waiting.emplace_back(what, free), void();
  ++levels;
  free(what);
  while (levels == 1 && !waiting.empty()) {
    const auto [next, how] = waiting.back();
    waiting.pop_back();
    how(next);
  }
  --levels;
}

const Value* Dict::find(const std::string& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &items_[found->second].second;
}

Value& Dict::operator[](const std::string& key) {
  const auto [place, added] = places_.emplace(key, items_.size());
  if (added) items_.emplace_back(key, Value());
  return items_[place->second].second;
}

const Value* Arguments::find(size_t i, std::string_view name) const {
  for (const auto& [given, value] : named)
    if (given == name) return &value;
  return i < positional.size() ? &positional[i] : nullptr;
}

Value tuple_of(List items) { return Tuple{.items = held(std::move(items))}; }

Function* Value::function() const {
  Object* const o = object();
  if (o == nullptr) return pointed<Function>();
  return o->call ? &o->call : nullptr;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* b = boolean()) return *b;
  if (const int64_t* i = integer()) return *i != 0;
  if (const double* d = real()) return *d != 0;
  if (const std::string* s = string()) return s->find_first_not_of(kMark) != s->npos;
  if (const List* l = list()) return !l->empty();
  if (const Dict* d = dict()) return d->size() > 0;
  return true;
}

bool Value::to_integer(int64_t& i) const {
  if (const bool* b = boolean()) return i = *b ? 1 : 0, true;
  if (const int64_t* own = integer()) return i = *own, true;
  return false;
}

bool Value::to_real(double& d) const {
  if (const double* own = real()) return d = *own, true;
  if (const LongInteger* own = long_integer())
    return d = std::strtod(own->digits->c_str(), nullptr), true;
  int64_t i = 0;
  if (!to_integer(i)) return false;
  d = static_cast<double>(i);
  return true;
}

const char* type_name(const Value& v) {
  if (v.is_undefined()) return "undefined";
  if (v.is_none()) return "none";
  if (v.boolean()) return "bool";
  if (v.integer() || v.long_integer()) return "int";
  if (v.real()) return "float";
  if (v.string()) return "string";
  if (v.tuple()) return "tuple";
  if (v.list()) return "list";
  if (v.dict()) return "dict";
  return v.object() ? v.object()->kind : "function";
}

namespace {

// Below, at or above 0 if a is before, equal to or after b.
int compared(const std::string& a, const std::string& b) {
  spend_bytes(std::min(a.size(), b.size()));
  if (!has_marks(a) && !has_marks(b)) return a.compare(b);
  return without_marks(a).compare(without_marks(b));
}

bool is_whole(const Value& v) { return v.integer() || v.long_integer(); }

// a < b for integers of any size.
bool less_digits(const std::string& a, const std::string& b) {
  const bool negative = a.starts_with('-');
  if (negative != b.starts_with('-')) return negative;
  if (a.size() != b.size()) return (a.size() < b.size()) != negative;
  return negative ? b < a : a < b;
}

Value long_integer(std::string digits) {
  return LongInteger{std::make_shared<const std::string>(std::move(digits))};
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  const Level level;
  spend(1);
  double x = 0, y = 0;
  int64_t i = 0, j = 0;
  if (a.to_integer(i) && b.to_integer(j)) return i == j;
  if (is_whole(a) && is_whole(b)) return text_of(a) == text_of(b);
  if (a.to_real(x) && b.to_real(y)) return x == y;
  if (a.string() && b.string()) return compared(*a.string(), *b.string()) == 0;
  if (a.list() && b.list())
    return !a.tuple() == !b.tuple() && std::ranges::equal(*a.list(), *b.list(), equal);
  if (a.dict() && b.dict()) {
    if (a.dict()->size() != b.dict()->size()) return false;
    return std::ranges::all_of(a.dict()->items(), [&](const auto& item) {
      const Value* other = b.dict()->find(item.first);
      return other != nullptr && equal(item.second, *other);
    });
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined()) ||
         (a.function() && a.function() == b.function()) || (a.object() && a.object() == b.object());
}

bool less(const Value& a, const Value& b) {
  const Level level;
  spend(1);
  double x = 0, y = 0;
  int64_t i = 0, j = 0;
  if (a.to_integer(i) && b.to_integer(j)) return i < j;
  if (is_whole(a) && is_whole(b)) return less_digits(text_of(a), text_of(b));
  if (a.to_real(x) && b.to_real(y)) return x < y;
  if (a.string() && b.string()) return compared(*a.string(), *b.string()) < 0;
  if (a.list() && b.list() && !a.tuple() == !b.tuple()) {
    // The first differing elements decide: values without an order may occur in both.
    const List &first = *a.list(), &second = *b.list();
    for (size_t n = 0; n < std::min(first.size(), second.size()); ++n)
      if (!equal(first[n], second[n])) return less(first[n], second[n]);
    return first.size() < second.size();
  }
  fail(concat("a ", type_name(a), " and a ", type_name(b), " cannot be compared"));
}

std::string text_of(const Value& v) {
  if (v.is_undefined()) return "";
  if (v.is_none()) return "None";
  if (const bool* b = v.boolean()) return *b ? "True" : "False";
  if (const int64_t* i = v.integer()) return std::to_string(*i);
  if (const LongInteger* i = v.long_integer()) return *i->digits;
  if (const double* d = v.real()) return real_text(*d);
  if (const std::string* s = v.string()) {
    spend_bytes(s->size());
    return *s;
  }
  if (v.list() || v.dict()) return shown(v, 0);
  if (v.object() && v.object()->can_be_set)
    return concat("<Namespace ", shown(v.object()->members, 0), '>');
  return concat('<', type_name(v), '>');
}

std::string repr_of(const Value& v) { return shown(v, 0); }

std::string json_of(const Value& v, const JsonStyle& style, int depth) {
  if (depth > kMaxDepth) fail("a value is nested too deeply for tojson");
  spend(1);
  if (v.is_none()) return "null";
  if (const bool* b = v.boolean()) return *b ? "true" : "false";
  if (const double* d = v.real())
    return std::isfinite(*d) ? real_text(*d)
           : std::isnan(*d)  ? "NaN"
           : *d > 0          ? "Infinity"
                             : "-Infinity";
  if (v.integer() || v.long_integer()) return text_of(v);
  if (const std::string* s = v.string()) return json_string(*s, style.ascii);
  std::vector<std::string> parts;
  if (const List* list = v.list()) {
    for (const Value& item : *list) parts.push_back(json_of(item, style, depth + 1));
    return joined(parts, '[', ']', style, depth);
  }
  if (const Dict* dict = v.dict()) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : dict->items()) items.push_back(&item);
    if (style.sort_keys)
      std::ranges::sort(items, {},
                        [](const auto* item) -> const std::string& { return item->first; });
    for (const auto* item : items)
      parts.push_back(concat(json_string(item->first, style.ascii), style.key,
                             json_of(item->second, style, depth + 1)));
    return joined(parts, '{', '}', style, depth);
  }
  fail(concat("a value that is ", type_name(v), " cannot be written as JSON"));
}

Value from_json(const nlohmann::ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) {
    if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      return long_integer(std::to_string(json.get<uint64_t>()));
    return json.get<int64_t>();
  }
  if (json.is_number()) return json.get<double>();
  if (json.is_binary()) return long_integer({json.get_binary().begin(), json.get_binary().end()});
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& item : json) list.push_back(from_json(item));
    return list;
  }
  if (json.is_object()) {
    Dict dict;
    for (const auto& [key, item] : json.items()) dict[key] = from_json(item);
    return dict;
  }
  return {};
}

int64_t length_of(const std::string& text) {
  spend_bytes(text.size());
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80 && c != kMark; });
}

std::string slice_of(const std::string& text, int64_t begin, int64_t end, int64_t step) {
  const std::vector<size_t> starts = starts_of(text);
  std::string out;
  for (const int64_t i : slice_places(std::ssize(starts) - 1, begin, end, step)) {
    const auto at = static_cast<size_t>(i);
    out.append(text, starts[at], starts[at + 1] - starts[at]);
  }
  return out;
}

List slice_of(const List& list, int64_t begin, int64_t end, int64_t step) {
  List out;
  spend(std::ssize(list));
  for (const int64_t i : slice_places(std::ssize(list), begin, end, step))
    out.push_back(list[static_cast<size_t>(i)]);
  return out;
}

List elements_of(const Value& v) {
  if (const List* list = v.list()) {
    spend(std::ssize(*list));
    return *list;
  }
  List out;
  if (v.is_undefined()) return out;
  if (const Dict* dict = v.dict()) {
    spend(std::ssize(dict->items()));
    for (const auto& item : dict->items()) out.emplace_back(item.first);
    return out;
  }
  if (const std::string* s = v.string()) {
    spend(std::ssize(*s));
    for (size_t at = 0; at < s->size();) {
      const size_t end = next_place(*s, at);
      out.emplace_back(s->substr(at, end - at));
      at = end;
    }
    return out;
  }
  fail(concat("a ", type_name(v), " is not iterable"));
}

}  // namespace trireme::jinja
