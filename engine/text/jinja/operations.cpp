// Arithmetic, membership and elements.
#include <algorithm>
#include <climits>
#include <cmath>

#include "engine/core/error.h"
#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {
namespace {

constexpr int64_t kMaxElements = 1 << 20;

[[noreturn]] void no_operation(const std::string& operation, const Value& a, const Value& b) {
  fail(concat("a ", type_name(a), " ", operation, " a ", type_name(b), " is not supported"));
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
    if (b == -1) {  // the smallest integer has no negation
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
  if (!list.empty() && times > kMaxElements / std::ssize(list)) fail("a list is too long");
  spend(std::ssize(list) * times);
  List out;
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), list.begin(), list.end());
  return what.tuple() ? tuple_of(std::move(out)) : Value(std::move(out));
}

}  // namespace

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
  if (!a.string() && !b.string() && (a.long_integer() || b.long_integer()))
    fail("a number has more than 64 bits");
  if (a.to_integer(i) && b.to_integer(j)) return of_integers(operation, i, j);
  if (a.to_real(x) && b.to_real(y)) return of_reals(operation, x, y);
  if (operation == "+" && a.string() && b.string()) {
    r.check_size(std::ssize(*a.string()) + std::ssize(*b.string()));
    spend_bytes(a.string()->size() + b.string()->size());
    return *a.string() + *b.string();
  }
  if (operation == "+" && a.list() && b.list() && !a.tuple() == !b.tuple()) {
    if (std::ssize(*a.list()) + std::ssize(*b.list()) > kMaxElements) fail("a list is too long");
    spend(std::ssize(*a.list()) + std::ssize(*b.list()));
    List out = *a.list();
    out.insert(out.end(), b.list()->begin(), b.list()->end());
    return a.tuple() ? tuple_of(std::move(out)) : Value(std::move(out));
  }
  if (operation == "*" && (a.string() || a.list()) && b.to_integer(j)) return repeated(r, a, j);
  if (operation == "*" && (b.string() || b.list()) && a.to_integer(i)) return repeated(r, b, i);
  if (operation == "%" && a.string()) return percent_formatted(r, *a.string(), b);
  if (a.is_undefined() || b.is_undefined())
    fail(concat("\"", (a.is_undefined() ? a : b).undefined_name(), "\" is undefined, so it has no ",
                operation));
  no_operation(operation, a, b);
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* s = container.string()) {
    if (item.string() == nullptr) fail(concat("a string cannot contain a ", type_name(item)));
    return Search(*s).find(without_marks(*item.string())) != std::string::npos;
  }
  if (const List* list = container.list())
    return std::ranges::any_of(*list, [&](const Value& v) { return equal(v, item); });
  if (const Dict* dict = container.dict())
    return item.string() && dict->find(*item.string()) != nullptr;
  if (container.is_undefined()) return false;
  fail(concat("a ", type_name(container), " does not support `in`"));
}

}  // namespace trireme::jinja
