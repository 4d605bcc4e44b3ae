// Methods of strings, lists and dicts, and members of objects.
#include <algorithm>
#include <climits>
#include <map>
#include <set>

#include "engine/core/error.h"
#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/case_mapping.h"
#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/nodes.h"
#include "engine/text/jinja/text_tools.h"

namespace trireme::jinja {
namespace {

using Method = Value (*)(Renderer& r, const Value& owner, const Arguments& arguments);

// Whether the text starts (or ends) with the string, or with one of the list.
bool has_end(const std::string& s, const Arguments& a, bool at_start) {
  const Value* v = a.find(0, "prefix");
  List choices;
  if (v != nullptr && v->list())
    choices = *v->list();
  else if (v != nullptr)
    choices = {*v};
  return std::ranges::any_of(choices, [&](const Value& choice) {
    if (choice.string() == nullptr) fail("startswith and endswith expect strings");
    const std::string part = without_marks(*choice.string());
    return at_start ? s.starts_with(part) : s.ends_with(part);
  });
}

// Part of a text within the bounds of find() and similar, and its offset.
std::pair<std::string, int64_t> bounded(const std::string& s, const Arguments& a, size_t first) {
  if (a.positional.size() <= first) return {s, 0};
  const int64_t length = length_of(s);
  const auto place = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + length : i, 0, length);
  };
  const int64_t begin = place(std::max(integer_at(a, first, "start", 0), INT64_MIN / 4));
  return {slice_of(s, begin,
                   place(std::max(integer_at(a, first + 1, "end", length), INT64_MIN / 4)), 1),
          begin};
}

Value stripped_by(const Value& owner, const Arguments& a, bool left, bool right) {
  return stripped(*owner.string(), text_or_none(a, 0, "chars"), left, right);
}

Value ends(const Value& owner, const Arguments& a, bool at_start) {
  return has_end(without_marks(bounded(*owner.string(), a, 1).first), a, at_start);
}

Value split(const Value& owner, const Arguments& a, bool from_right) {
  return split_text(*owner.string(), text_or_none(a, 0, "sep"), integer_at(a, 1, "maxsplit", -1),
                    from_right);
}

// find, rfind, index and rindex: position in characters.
Value place_of(const Value& owner, const Arguments& a, bool last, bool must_be_there) {
  const std::string part = without_marks(text_at(a, 0, "sub", "find"));
  const auto [text, begin] = bounded(*owner.string(), a, 1);
  const Search search(text);
  const size_t at = last ? search.find_last(part) : search.find(part);
  if (at == std::string::npos && must_be_there) fail("index: substring not found");
  return at == std::string::npos ? int64_t{-1} : begin + length_of(search.cut(0, at));
}

Value partition(const Value& owner, const Arguments& a, bool last) {
  const std::string &s = *owner.string(), &part = text_at(a, 0, "sep", "partition");
  const std::string plain = without_marks(part);
  if (plain.empty()) fail("partition expects a separator that is not empty");
  const Search search(s);
  const size_t at = last ? search.find_last(plain) : search.find(plain);
  if (at == std::string::npos) return tuple_of(last ? List{"", "", s} : List{s, "", ""});
  return tuple_of(
      {search.cut(0, at), part, search.cut(at + plain.size(), std::string::npos, plain.size())});
}

Value justified(Renderer& r, const Value& owner, const Arguments& a, char align) {
  const Value* fill = a.find(1, "fillchar");
  const std::string by = fill != nullptr ? text_in(*fill, "fillchar") : " ";
  if (length_of(by) != 1) fail("the fill character must be one character");
  return padded(r, *owner.string(), integer_at(a, 0, "width", 0), by, align, true);
}

Value zfill(Renderer& r, const Value& owner, const Arguments& a) {
  const std::string& s = *owner.string();
  const size_t sign = s.starts_with('-') || s.starts_with('+') ? 1 : 0;
  return s.substr(0, sign) + padded(r, s.substr(sign),
                                    integer_at(a, 0, "width", 0) - static_cast<int64_t>(sign), "0",
                                    '>');
}

Value splitlines(const Value& owner, const Arguments& a) {
  if (flag_at(a, 0, "keepends", false)) fail("splitlines(keepends) is not supported");
  return lines_of(*owner.string());
}

Value without_end(const Value& owner, const Arguments& a, bool at_start) {
  const std::string &s = *owner.string(), &part = text_at(a, 0, "prefix", "removeprefix");
  const Search search(s);
  const std::string plain = without_marks(part);
  if (at_start && !search.plain().starts_with(plain)) return s;
  if (at_start) return search.cut(plain.size(), std::string::npos, plain.size());
  return search.plain().ends_with(plain) ? search.cut(0, search.plain().size() - plain.size()) : s;
}

Value replaced(Renderer& r, const Value& owner, const Arguments& a) {
  return replaced_text(r, *owner.string(), text_at(a, 0, "old", "replace"),
                       text_at(a, 1, "new", "replace"), integer_at(a, 2, "count", -1));
}

Value join(Renderer& r, const Value& owner, const Arguments& a) {
  const Value* list = a.find(0, "iterable");
  const List items = list == nullptr ? List() : elements_of(*list);
  for (const Value& item : items) (void)text_in(item, "join");
  return joined_text(r, items, *owner.string());
}

#define TRIREME_METHOD(body)                                         \
  [](Renderer& r, const Value& owner, const Arguments& a) -> Value { \
    (void)r, (void)a;                                                \
    return body;                                                     \
  }
const std::map<std::string, Method, std::less<>>& string_methods() {
  static const std::map<std::string, Method, std::less<>> kMethods = {
      {"capitalize", TRIREME_METHOD(capitalized(*owner.string()))},
      {"casefold", TRIREME_METHOD(case_folded(*owner.string()))},
      {"center", TRIREME_METHOD(justified(r, owner, a, '^'))},
      {"count", TRIREME_METHOD(
                    count_of(bounded(*owner.string(), a, 1).first, text_at(a, 0, "sub", "count")))},
      {"endswith", TRIREME_METHOD(ends(owner, a, false))},
      {"find", TRIREME_METHOD(place_of(owner, a, false, false))},
      {"format", TRIREME_METHOD(brace_formatted(r, *owner.string(), a))},
      {"index", TRIREME_METHOD(place_of(owner, a, false, true))},
      {"isalnum", TRIREME_METHOD(is_all(*owner.string(), "isalnum"))},
      {"isalpha", TRIREME_METHOD(is_all(*owner.string(), "isalpha"))},
      {"isascii", TRIREME_METHOD(is_all(*owner.string(), "isascii"))},
      {"isdecimal", TRIREME_METHOD(is_all(*owner.string(), "isdecimal"))},
      {"isdigit", TRIREME_METHOD(is_all(*owner.string(), "isdigit"))},
      {"islower", TRIREME_METHOD(is_cased(*owner.string(), "islower"))},
      {"isnumeric", TRIREME_METHOD(is_all(*owner.string(), "isnumeric"))},
      {"isspace", TRIREME_METHOD(is_all(*owner.string(), "isspace"))},
      {"istitle", TRIREME_METHOD(is_cased(*owner.string(), "istitle"))},
      {"isupper", TRIREME_METHOD(is_cased(*owner.string(), "isupper"))},
      {"join", join},
      {"ljust", TRIREME_METHOD(justified(r, owner, a, '<'))},
      {"lower", TRIREME_METHOD(lower_text(*owner.string()))},
      {"lstrip", TRIREME_METHOD(stripped_by(owner, a, true, false))},
      {"partition", TRIREME_METHOD(partition(owner, a, false))},
      {"removeprefix", TRIREME_METHOD(without_end(owner, a, true))},
      {"removesuffix", TRIREME_METHOD(without_end(owner, a, false))},
      {"replace", replaced},
      {"rfind", TRIREME_METHOD(place_of(owner, a, true, false))},
      {"rindex", TRIREME_METHOD(place_of(owner, a, true, true))},
      {"rjust", TRIREME_METHOD(justified(r, owner, a, '>'))},
      {"rpartition", TRIREME_METHOD(partition(owner, a, true))},
      {"rsplit", TRIREME_METHOD(split(owner, a, true))},
      {"rstrip", TRIREME_METHOD(stripped_by(owner, a, false, true))},
      {"split", TRIREME_METHOD(split(owner, a, false))},
      {"splitlines", TRIREME_METHOD(splitlines(owner, a))},
      {"startswith", TRIREME_METHOD(ends(owner, a, true))},
      {"strip", TRIREME_METHOD(stripped_by(owner, a, true, true))},
      {"swapcase", TRIREME_METHOD(swapped_case(*owner.string()))},
      {"title", TRIREME_METHOD(title_case(*owner.string()))},
      {"upper", TRIREME_METHOD(upper_case(*owner.string()))},
      {"zfill", zfill},
  };
  return kMethods;
}
#undef TRIREME_METHOD

Value entries(Renderer&, const Value& owner, const Arguments&) {
  List out;
  spend(2 * std::ssize(owner.dict()->items()));
  for (const auto& [key, item] : owner.dict()->items()) out.push_back(tuple_of({key, item}));
  return out;
}

Value keys(Renderer&, const Value& owner, const Arguments&) { return elements_of(owner); }

Value values(Renderer&, const Value& owner, const Arguments&) {
  List out;
  spend(std::ssize(owner.dict()->items()));
  for (const auto& [key, item] : owner.dict()->items()) out.push_back(item);
  return out;
}

Value get(Renderer&, const Value& owner, const Arguments& a) {
  const Value* key = a.find(0, "key");
  const Value* found =
      key != nullptr && key->string() ? owner.dict()->find(*key->string()) : nullptr;
  if (found != nullptr) return *found;
  const Value* fallback = a.find(1, "default");
  return fallback != nullptr ? *fallback : Value();
}

Value copy(Renderer&, const Value& owner, const Arguments&) {
  if (owner.dict() == nullptr) return elements_of(owner);
  spend(2 * std::ssize(owner.dict()->items()));
  return *owner.dict();
}

Value index_in(Renderer&, const Value& owner, const Arguments& a) {
  const Value* what = a.find(0, "value");
  const List& list = *owner.list();
  for (size_t i = 0; what != nullptr && i < list.size(); ++i)
    if (equal(list[i], *what)) return static_cast<int64_t>(i);
  fail("index: value not found in the list");
}

Value count_in(Renderer&, const Value& owner, const Arguments& a) {
  const Value* what = a.find(0, "value");
  if (what == nullptr) fail("count expects a value");
  return int64_t{
      std::ranges::count_if(*owner.list(), [&](const Value& v) { return equal(v, *what); })};
}

Method find_method(const Value& owner, const std::string& name) {
  if (owner.string()) {
    const auto found = string_methods().find(name);
    return found == string_methods().end() ? nullptr : found->second;
  }
  if (owner.dict())
    return name == "items"    ? entries
           : name == "keys"   ? keys
           : name == "values" ? values
           : name == "get"    ? get
           : name == "copy"   ? copy
                              : nullptr;
  if (owner.list() == nullptr) return nullptr;
  return name == "index"                    ? index_in
         : name == "count"                  ? count_in
         : name == "copy" && !owner.tuple() ? copy
                                            : nullptr;
}

// Whether a method modifies a list or dict, which HuggingFace's sandbox forbids.
bool changes(const Value& owner, const std::string& name) {
  static const std::set<std::string, std::less<>> kOfLists = {"append",  "clear", "extend",
                                                              "insert",  "pop",   "remove",
                                                              "reverse", "sort"},
                                                  kOfDicts = {"clear", "pop", "popitem",
                                                              "setdefault", "update"};
  return owner.dict() ? kOfDicts.contains(name)
                      : owner.list() && !owner.tuple() && kOfLists.contains(name);
}

}  // namespace

Value attribute_of(Renderer& r, const Value& value, const std::string& name) {
  if (const Method method = find_method(value, name)) {
    if (value.string()) spend_bytes(4 * value.string()->size());  // it iterates over the text
    return Function([value, method, &r](Arguments& a) { return method(r, value, a); });
  }
  if (changes(value, name))
    return Function([name](Arguments&) -> Value {
      fail(concat("\"", name, "\" changes a value, which a chat template may not"));
    });
  if (const Tuple* t = value.tuple(); t != nullptr && t->is_group)
    if (name == "grouper" || name == "list") return (*t->items)[name == "list" ? 1 : 0];
  const Dict* members = value.dict()     ? value.dict()
                        : value.object() ? &value.object()->members
                                         : nullptr;
  const Value* found = members != nullptr ? members->find(name) : nullptr;
  return found != nullptr ? *found : Value(Undefined{name});
}

}  // namespace trireme::jinja
