// Tests of Jinja2 (`is`, select) that chat templates use.
#include <cmath>
#include <map>

#include "engine/core/error.h"
#include "engine/text/jinja/case_mapping.h"
#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {
namespace {

const Value& other(const Arguments& a) {
  if (a.positional.empty()) fail("a test expects a value to compare with");
  return a.positional[0];
}

int64_t whole(const Value& v) {
  int64_t i = 0;
  if (!v.to_integer(i)) fail(concat("a test expects a whole number, not a ", type_name(v)));
  return i;
}

// Identity: equal values of different types are not the same, nor are undefined ones.
bool same(const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) return false;
  if (a.list() || b.list()) return a.list() == b.list();
  if (a.dict() || b.dict()) return a.dict() == b.dict();
  return std::string_view(type_name(a)) == type_name(b) && equal(a, b);
}

// v % by == 0, also for reals.
bool divides(const Value& by, const Value& v) {
  double x = 0, y = 0;
  if (v.real() == nullptr && by.real() == nullptr) {
    if (whole(by) == 0) fail("a division by zero");
    return whole(by) == -1 || whole(v) % whole(by) == 0;
  }
  if (!v.to_real(x) || !by.to_real(y)) fail("a test expects numbers");
  if (y == 0) fail("a division by zero");
  return std::fmod(x, y) == 0;
}
bool is_odd(const Value& v) {
  const double rest = v.real() ? std::fmod(*v.real(), 2) : 0;
  return v.real() ? rest == 1 || rest == -1 : whole(v) % 2 != 0;
}

bool is_number(const Value& v) {
  return v.integer() || v.long_integer() || v.real() || v.boolean();
}
bool is_sequence(const Value& v) { return v.string() || v.list() || v.dict(); }

#define TRIREME_TEST(body)                         \
  [](const Value& v, const Arguments& a) -> bool { \
    (void)a;                                       \
    return body;                                   \
  }
const std::map<std::string, Test, std::less<>>& tests() {
  static const std::map<std::string, Test, std::less<>> kTests = {
      {"!=", TRIREME_TEST(!equal(v, other(a)))},
      {"lessthan", TRIREME_TEST(less(v, other(a)))},
      {"greaterthan", TRIREME_TEST(less(other(a), v))},
      {">=", TRIREME_TEST(!less(v, other(a)))},
      {"<=", TRIREME_TEST(!less(other(a), v))},
      {"<", TRIREME_TEST(less(v, other(a)))},
      {"==", TRIREME_TEST(equal(v, other(a)))},
      {">", TRIREME_TEST(less(other(a), v))},
      {"boolean", TRIREME_TEST(v.boolean() != nullptr)},
      {"callable", TRIREME_TEST(v.function() != nullptr || v.is_undefined())},
      {"defined", TRIREME_TEST(!v.is_undefined())},
      {"divisibleby", TRIREME_TEST(divides(other(a), v))},
      {"eq", TRIREME_TEST(equal(v, other(a)))},
      {"equalto", TRIREME_TEST(equal(v, other(a)))},
      {"escaped", TRIREME_TEST((void(v), false))},  // there is no Markup here
      {"even", TRIREME_TEST(divides(int64_t{2}, v))},
      {"false", TRIREME_TEST(v.boolean() && !*v.boolean())},
      {"filter", TRIREME_TEST(v.string() && find_filter(*v.string()) != nullptr)},
      {"float", TRIREME_TEST(v.real() != nullptr)},
      {"ge", TRIREME_TEST(!less(v, other(a)))},
      {"gt", TRIREME_TEST(less(other(a), v))},
      {"in", TRIREME_TEST(contains(other(a), v))},
      {"integer", TRIREME_TEST(v.integer() || v.long_integer())},
      {"iterable", TRIREME_TEST(is_sequence(v) || v.is_undefined())},
      {"le", TRIREME_TEST(!less(other(a), v))},
      {"lower", TRIREME_TEST(is_cased(text_of(v), "islower"))},
      {"lt", TRIREME_TEST(less(v, other(a)))},
      {"mapping", TRIREME_TEST(v.dict() != nullptr)},
      {"ne", TRIREME_TEST(!equal(v, other(a)))},
      {"none", TRIREME_TEST(v.is_none())},
      {"number", TRIREME_TEST(is_number(v))},
      {"odd", TRIREME_TEST(is_odd(v))},
      {"sameas", TRIREME_TEST(same(v, other(a)))},
      {"sequence", TRIREME_TEST(is_sequence(v) || v.is_undefined())},
      {"string", TRIREME_TEST(v.string() != nullptr)},
      {"test", TRIREME_TEST(v.string() && find_test(*v.string()) != nullptr)},
      {"true", TRIREME_TEST(v.boolean() && *v.boolean())},
      {"undefined", TRIREME_TEST(v.is_undefined())},
      {"upper", TRIREME_TEST(is_cased(text_of(v), "isupper"))},
  };
  return kTests;
}
#undef TRIREME_TEST

}  // namespace

Test find_test(const std::string& name) {
  const auto found = tests().find(name);
  return found == tests().end() ? nullptr : found->second;
}

}  // namespace trireme::jinja
