// Arithmetic, membership, elements, and the methods of strings, lists and dicts.
#include <algorithm>
#include <climits>
#include <cmath>

#include "engine/core/error.h"
#include "engine/text/jinja/nodes.h"
#include "engine/text/jinja/text_tools.h"

namespace trireme::jinja {
namespace {

constexpr int64_t kMostElements = 1 << 20;

[[noreturn]] void no_operation(const std::string& operation, const Value& a, const Value& b) {
  fail(concat("a ", type_name(a), " ", operation, " a ", type_name(b), " has no meaning"));
}

Value of_integers(const std::string& operation, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  if (operation == "+") overflow = __builtin_add_overflow(a, b, &out);
  if (operation == "-") overflow = __builtin_sub_overflow(a, b, &out);
  if (operation == "*") overflow = __builtin_mul_overflow(a, b, &out);
  if (operation == "/" || operation == "//" || operation == "%") {
    if (b == 0) fail("a division by zero");
    if (operation == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) {  // the smallest number has no opposite
      overflow = operation == "//" && __builtin_sub_overflow(int64_t{0}, a, &out);
    } else {
      const int64_t quotient = a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
      out = operation == "//" ? quotient : a - quotient * b;
    }
  }
  if (operation == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    out = 1;
    for (int64_t square = a, left = b; left > 0 && !overflow;) {
      if (left % 2 == 1) overflow = __builtin_mul_overflow(out, square, &out);
      left /= 2;
      if (left > 0) overflow |= __builtin_mul_overflow(square, square, &square);
    }
  }
  if (overflow) fail("a number has more than 64 bits");
  return out;
}

Value of_reals(const std::string& operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "**") return std::pow(a, b);
  if (b == 0) fail("a division by zero");
  if (operation == "/") return a / b;
  if (operation == "//") return std::floor(a / b);
  return a - std::floor(a / b) * b;
}

Value repeated(Renderer& r, const Value& what, int64_t times) {
  times = std::max<int64_t>(0, times);
  if (const std::string* s = what.string()) {
    if (!s->empty() && times > r.limits.output / std::ssize(*s)) r.check_size(INT64_MAX);
    spend_bytes(s->size() * static_cast<size_t>(times));
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += *s;
    return out;
  }
  const List& list = *what.list();
  if (!list.empty() && times > kMostElements / std::ssize(list)) fail("a list is too long");
  spend(std::ssize(list) * times);
  List out;
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), list.begin(), list.end());
  return out;
}

// %-formatting of one or several values.
std::string formatted(const std::string& format, const List& values) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const char kind = format[++i];
    if (kind == '%') {
      out += '%';
      continue;
    }
    if (kind != 's' && kind != 'd' && kind != 'r')
      fail(concat("the format %", kind, " is not available"));
    if (next == values.size()) fail("a format has more places than values");
    const Value& v = values[next++];
    out += kind == 'r' ? repr_of(v) : text_of(v);
  }
  if (next < values.size()) fail("a format has fewer places than values");
  return out;
}

Value bound(std::function<Value(const Arguments&)> f) {
  return Function([f = std::move(f)](Arguments& a) { return f(a); });
}

const std::string& text_argument(const Arguments& a, size_t i, const char* name,
                                 const char* method) {
  const Value* v = a.find(i, name);
  if (v == nullptr || v->string() == nullptr) fail(concat(method, " wants a string"));
  return *v->string();
}

int64_t integer_argument(const Arguments& a, size_t i, const char* name, int64_t fallback) {
  const Value* v = a.find(i, name);
  int64_t out = fallback;
  if (v != nullptr && !v->is_none() && !v->to_integer(out))
    fail(concat("\"", name, "\" is no whole number"));
  return out;
}

// Whether the text begins (or ends) with the string, or one of the list.
bool has_end(const std::string& s, const Arguments& a, bool at_start) {
  const Value* v = a.find(0, "prefix");
  List choices;
  if (v != nullptr && v->list())
    choices = *v->list();
  else if (v != nullptr)
    choices = {*v};
  return std::ranges::any_of(choices, [&](const Value& choice) {
    if (choice.string() == nullptr) fail("startswith and endswith want strings");
    return at_start ? s.starts_with(*choice.string()) : s.ends_with(*choice.string());
  });
}

Value string_method(Renderer& r, const std::string& s, const std::string& name) {
  spend_bytes(4 * s.size());  // a method keeps the text, and walks over it
  const auto stripped_by = [&](bool left, bool right) {
    return bound([s, left, right](const Arguments& a) -> Value {
      const Value* chars = a.find(0, "chars");
      const bool given = chars != nullptr && chars->string() != nullptr;
      return stripped(s, given ? chars->string() : nullptr, left, right);
    });
  };
  if (name == "strip") return stripped_by(true, true);
  if (name == "lstrip") return stripped_by(true, false);
  if (name == "rstrip") return stripped_by(false, true);
  if (name == "upper") return bound([s](const Arguments&) -> Value { return upper_case(s); });
  if (name == "lower") return bound([s](const Arguments&) -> Value { return lower_text(s); });
  if (name == "title") return bound([s](const Arguments&) -> Value { return title_case(s); });
  if (name == "capitalize") return bound([s](const Arguments&) -> Value { return capitalized(s); });
  if (name == "splitlines") return bound([s](const Arguments&) -> Value { return lines_of(s); });
  if (name == "startswith")
    return bound([s](const Arguments& a) -> Value { return has_end(s, a, true); });
  if (name == "endswith")
    return bound([s](const Arguments& a) -> Value { return has_end(s, a, false); });
  if (name == "split" || name == "rsplit")
    return bound([s, from_right = name == "rsplit"](const Arguments& a) -> Value {
      const Value* separator = a.find(0, "sep");
      const bool given = separator != nullptr && separator->string() != nullptr;
      return split_text(s, given ? separator->string() : nullptr,
                        integer_argument(a, 1, "maxsplit", -1), from_right);
    });
  if (name == "replace")
    return bound([s, &r](const Arguments& a) -> Value {
      return replaced_text(r, s, text_argument(a, 0, "old", "replace"),
                           text_argument(a, 1, "new", "replace"),
                           integer_argument(a, 2, "count", -1));
    });
  if (name == "find" || name == "index" || name == "count")
    return bound([s, name](const Arguments& a) -> Value {
      const std::string& part = text_argument(a, 0, "sub", "find");
      if (name == "count") return count_of(s, part);
      const size_t at = s.find(part);
      if (at == std::string::npos && name == "index")
        fail("a text does not hold what index looks for");
      return at == std::string::npos ? int64_t{-1} : length_of(s.substr(0, at));
    });
  if (name == "join")
    return bound([s, &r](const Arguments& a) -> Value {
      const Value* list = a.find(0, "iterable");
      return joined_text(r, list == nullptr ? List() : elements_of(*list), s);
    });
  if (name == "removeprefix" || name == "removesuffix")
    return bound([s, name](const Arguments& a) -> Value {
      const std::string& part = text_argument(a, 0, "prefix", "removeprefix");
      if (name == "removeprefix") return s.starts_with(part) ? s.substr(part.size()) : s;
      return s.ends_with(part) ? s.substr(0, s.size() - part.size()) : s;
    });
  if (name == "isdigit" || name == "isspace" || name == "isalpha" || name == "isalnum" ||
      name == "isupper" || name == "islower")
    return bound([s, name](const Arguments&) -> Value { return is_all(s, name); });
  return Undefined{name};
}

Value dict_method(const Value& owner, const std::string& name) {
  const Dict& dict = *owner.dict();
  if (name == "items" || name == "keys" || name == "values")
    return bound([owner, name](const Arguments&) -> Value {
      List out;
      for (const auto& [key, item] : owner.dict()->items()) {
        if (name == "items")
          out.emplace_back(List{key, item});
        else if (name == "keys")
          out.emplace_back(key);
        else
          out.push_back(item);
      }
      return out;
    });
  if (name == "get")
    return bound([owner](const Arguments& a) -> Value {
      const Value* key = a.find(0, "key");
      const Value* found =
          key != nullptr && key->string() ? owner.dict()->find(*key->string()) : nullptr;
      if (found != nullptr) return *found;
      const Value* fallback = a.find(1, "default");
      return fallback != nullptr ? *fallback : Value();
    });
  const Value* found = dict.find(name);
  return found != nullptr ? *found : Value(Undefined{name});
}

Value list_method(const Value& owner, const std::string& name) {
  if (name != "index" && name != "count") return Undefined{name};
  return bound([owner, name](const Arguments& a) -> Value {
    const Value* what = a.find(0, "value");
    int64_t count = 0;
    for (size_t i = 0; what != nullptr && i < owner.list()->size(); ++i) {
      if (!equal((*owner.list())[i], *what)) continue;
      if (name == "index") return static_cast<int64_t>(i);
      ++count;
    }
    if (name == "index") fail("a list does not hold what index looks for");
    return count;
  });
}

}  // namespace

Value attribute_of(Renderer& r, const Value& value, const std::string& name) {
  if (const std::string* s = value.string()) return string_method(r, *s, name);
  if (value.dict()) return dict_method(value, name);
  if (value.list()) return list_method(value, name);
  if (const Namespace* n = value.name_space()) {
    const Value* found = n->members.find(name);
    return found != nullptr ? *found : Value(Undefined{name});
  }
  return Undefined{name};
}

Value item_of(const Value& value, const Value& index) {
  if (const Dict* dict = value.dict()) {
    const Value* found = index.string() ? dict->find(*index.string()) : nullptr;
    return found != nullptr ? *found : Value(Undefined{text_of(index)});
  }
  int64_t i = 0;
  if (!index.to_integer(i)) return Undefined{text_of(index)};
  if (const List* list = value.list()) {
    if (i < 0) i += std::ssize(*list);
    return i >= 0 && i < std::ssize(*list) ? (*list)[static_cast<size_t>(i)]
                                           : Value(Undefined{text_of(index)});
  }
  if (const std::string* s = value.string()) {
    const int64_t length = length_of(*s);
    if (i < 0) i += length;
    if (i >= 0 && i < length) return slice_of(*s, i, i + 1, 1);
  }
  return Undefined{text_of(index)};
}

Value calculate(Renderer& r, const std::string& operation, const Value& a, const Value& b) {
  if (operation == "~") {
    const std::string first = text_of(a), second = text_of(b);
    r.check_size(std::ssize(first) + std::ssize(second));
    return first + second;
  }
  int64_t i = 0, j = 0;
  double x = 0, y = 0;
  if (a.to_integer(i) && b.to_integer(j)) return of_integers(operation, i, j);
  if (a.to_real(x) && b.to_real(y)) return of_reals(operation, x, y);
  if (operation == "+" && a.string() && b.string()) {
    r.check_size(std::ssize(*a.string()) + std::ssize(*b.string()));
    spend_bytes(a.string()->size() + b.string()->size());
    return *a.string() + *b.string();
  }
  if (operation == "+" && a.list() && b.list()) {
    if (std::ssize(*a.list()) + std::ssize(*b.list()) > kMostElements) fail("a list is too long");
    spend(std::ssize(*a.list()) + std::ssize(*b.list()));
    List out = *a.list();
    out.insert(out.end(), b.list()->begin(), b.list()->end());
    return out;
  }
  if (operation == "*" && (a.string() || a.list()) && b.to_integer(j)) return repeated(r, a, j);
  if (operation == "*" && (b.string() || b.list()) && a.to_integer(i)) return repeated(r, b, i);
  if (operation == "%" && a.string()) return formatted(*a.string(), b.list() ? *b.list() : List{b});
  if (a.is_undefined() || b.is_undefined())
    fail(concat("\"", (a.is_undefined() ? a : b).undefined_name(), "\" is undefined, so it has no ",
                operation));
  no_operation(operation, a, b);
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* s = container.string()) {
    if (item.string() == nullptr) fail(concat("a string cannot hold a ", type_name(item)));
    spend_bytes(s->size());
    return s->find(*item.string()) != std::string::npos;
  }
  if (const List* list = container.list())
    return std::ranges::any_of(*list, [&](const Value& v) { return equal(v, item); });
  if (const Dict* dict = container.dict())
    return item.string() && dict->find(*item.string()) != nullptr;
  if (container.is_undefined()) return false;
  fail(concat("a ", type_name(container), " holds nothing that `in` could find"));
}

}  // namespace trireme::jinja
