// Values of the template language, with Python's semantics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/jinja/budget.h"

namespace trireme::jinja {

class Value;
class Dict;
struct Arguments;
struct Object;
using List = std::vector<Value>;

struct Undefined {
  std::string name;
};
struct None {};
using Function = std::function<Value(Arguments&)>;
// Integer outside the range of int64_t, as written in JSON: printed and compared; arithmetic fails.
struct LongInteger {
  std::shared_ptr<const std::string> digits;  // preceded by "-" if negative
};
struct Tuple {
  std::shared_ptr<List> items;
  bool is_group = false;  // of groupby: its elements are also named grouper and list
};

// Frees a held value. Deeply nested values are freed later, one level at a time, because recursion
// over them would overflow the stack.
void free_held(void* what, void (*free)(void*));
template <class T>
std::shared_ptr<T> held(T value) {
  return {new T(std::move(value)),
          [](T* p) { free_held(p, [](void* what) { delete static_cast<T*>(what); }); }};
}

// Lists, dicts and objects are shared, not copied, as in Python.
class Value {
 public:
  Value() : v_(None{}) {}
  Value(Undefined u) : v_(std::move(u)) {}
  Value(bool b) : v_(b) {}
  Value(int64_t i) : v_(i) {}
  Value(double d) : v_(d) {}
  Value(LongInteger i) : v_(std::move(i)) {}
  Value(std::string s) : v_(std::make_shared<const std::string>(std::move(s))) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(List l) : v_(held(std::move(l))) {}
  Value(Dict d);
  Value(Function f) : v_(held(std::move(f))) {}
  Value(Tuple t) : v_(std::move(t)) {}
  Value(std::shared_ptr<Object> o) : v_(std::move(o)) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(v_); }
  bool is_none() const { return std::holds_alternative<None>(v_); }
  // Access by type; null for values of other types.
  const bool* boolean() const { return std::get_if<bool>(&v_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&v_); }
  const LongInteger* long_integer() const { return std::get_if<LongInteger>(&v_); }
  const double* real() const { return std::get_if<double>(&v_); }
  const std::string* string() const { return pointed<const std::string>(); }
  // Elements of a list or a tuple.
  List* list() const { return tuple() != nullptr ? tuple()->items.get() : pointed<List>(); }
  const Tuple* tuple() const { return std::get_if<Tuple>(&v_); }
  Dict* dict() const { return pointed<Dict>(); }
  Object* object() const { return pointed<Object>(); }
  Function* function() const;  // also of a callable object
  const std::string& undefined_name() const { return std::get<Undefined>(v_).name; }

  bool truth() const;
  // Conversions; false for other types.
  bool to_integer(int64_t& i) const;  // integers of 64 bits and bools
  bool to_real(double& d) const;      // all numbers and bools

 private:
  template <class T>
  T* pointed() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&v_);
    return p == nullptr ? nullptr : p->get();
  }
  std::variant<Undefined, None, bool, int64_t, LongInteger, double,
               std::shared_ptr<const std::string>, std::shared_ptr<List>, Tuple,
               std::shared_ptr<Dict>, std::shared_ptr<Function>, std::shared_ptr<Object>>
      v_;
};
Value tuple_of(List items);

// Keys in insertion order; strings only.
class Dict {
 public:
  const Value* find(const std::string& key) const;
  Value& operator[](const std::string& key);
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }

 private:
  std::vector<std::pair<std::string, Value>> items_;
  std::unordered_map<std::string, size_t> places_;
};

inline Value::Value(Dict d) : v_(held(std::move(d))) {}

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;

  // Argument by position i or by name; nullptr: not given.
  const Value* find(size_t i, std::string_view name) const;
};
// Values other than data: a namespace, a loop, a macro, a cycler.
struct Object {
  const char* kind;
  bool can_be_set = false;  // `set` may assign members
  Dict members = {};
  Function call = {};  // empty: cannot be called
};

const char* type_name(const Value& v);
bool equal(const Value& a, const Value& b);
// a < b; fails for types without an order.
bool less(const Value& a, const Value& b);
std::string text_of(const Value& v);  // str()
std::string repr_of(const Value& v);  // repr()

struct JsonStyle {
  int indent = -1;  // -1: one line
  std::string item = ", ", key = ": ";
  bool sort_keys = false;
  bool ascii = false;  // other characters as \uXXXX
};
std::string json_of(const Value& v, const JsonStyle& style, int depth = 0);
Value from_json(const nlohmann::ordered_json& json);

// Length in characters, not bytes.
int64_t length_of(const std::string& text);
// text[begin:end:step] by Python's rules, in characters; absent bounds are INT64_MIN. Fails for
// step 0.
std::string slice_of(const std::string& text, int64_t begin, int64_t end, int64_t step);
List slice_of(const List& list, int64_t begin, int64_t end, int64_t step);

// Elements that a for loop iterates over: the characters of a string, the keys of a dict, none of
// an undefined value. Fails for values that are not iterable.
List elements_of(const Value& v);

}  // namespace trireme::jinja
