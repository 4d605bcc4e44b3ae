// Value builder of strict_json.cpp, to derive from for more detailed errors. For .cpp files only:
// it includes the JSON library.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/json_limits.h"

namespace trireme {

// SAX handler that builds a value and checks limits and unique keys. The library's own parser with
// a callback scans all earlier members of an object after each one, and a file may have a million;
// and it silently keeps the last of equal keys. `what` must outlive the builder.
template <class JsonType>
class StrictJsonBuilder : public nlohmann::json_sax<JsonType> {
 public:
  StrictJsonBuilder(const std::string& what, const JsonLimits& limits)
      : what_(what), limits_(limits) {}
  JsonType take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(typename JsonType::number_integer_t value) override { return put(value); }
  bool number_unsigned(typename JsonType::number_unsigned_t value) override { return put(value); }
  bool number_float(typename JsonType::number_float_t value,
                    const typename JsonType::string_t& text) override {
    if (limits_.long_integers && text.find_first_of(".eE") == text.npos)
      return put(JsonType::binary({text.begin(), text.end()}));
    return put(value);
  }
  bool string(typename JsonType::string_t& value) override { return put(std::move(value)); }
  bool binary(typename JsonType::binary_t& value) override { return put(std::move(value)); }
  bool start_object(size_t /*size*/) override { return open(JsonType::object()); }
  bool start_array(size_t /*size*/) override { return open(JsonType::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(typename JsonType::string_t& name) override {
    Level& object = open_.back();
    if (!object.keys.insert(name).second) refuse_repeated(name);
    if (object.keys.size() > limits_.keys_per_object)
      fail_input(what_, ": more than ", limits_.keys_per_object, " keys in one object");
    object.key = std::move(name);
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const typename JsonType::exception& error) override {
    // Drops the name of the library's exception, in brackets before the message.
    const std::string_view text = error.what();
    const size_t name = text.find("] ");
    fail_input(what_, ": not valid JSON: ", text.substr(name == text.npos ? 0 : name + 2));
  }

 protected:
  struct Level {
    JsonType* node = nullptr;         // an object or array inside the previous level's
    std::set<std::string> keys = {};  // keys of the object so far
    std::string key = {};             // key of the next value
  };
  const std::string& what() const { return what_; }
  const JsonLimits& limits() const { return limits_; }
  const std::vector<Level>& levels() const { return open_; }
  // Throw InputError.
  virtual void refuse_repeated(const std::string& name) {
    fail_input(what_, ": the key \"", name, "\" appears twice");
  }
  virtual void refuse_depth() { fail_input(what_, ": JSON is nested deeper than ", limits_.depth); }

 private:
  bool open(JsonType&& empty) {
    if (std::ssize(open_) >= limits_.depth) refuse_depth();
    JsonType& node = add(std::move(empty));
    open_.push_back({.node = &node});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  template <class Value>
  bool put(Value&& value) {
    add(JsonType(std::forward<Value>(value)));
    return true;
  }
  // Adds a value; returns its location. Open containers do not move before they are complete.
  JsonType& add(JsonType&& value) {
    if (open_.empty()) return root_ = std::move(value);
    JsonType& parent = *open_.back().node;
    if (parent.is_array()) {
      auto& elements = parent.template get_ref<typename JsonType::array_t&>();
      return elements.emplace_back(std::move(value));
    }
    auto& members = parent.template get_ref<typename JsonType::object_t&>();
    const std::string& name = open_.back().key;
    if constexpr (requires { typename JsonType::object_t::Container; }) {
      // An ordered object would search all its keys for this one.
      auto& list = static_cast<typename JsonType::object_t::Container&>(members);
      return list.emplace_back(name, std::move(value)).second;
    } else {
      return members.emplace(name, std::move(value)).first->second;
    }
  }

  const std::string& what_;
  const JsonLimits limits_;
  JsonType root_;
  std::vector<Level> open_;
};

}  // namespace trireme
