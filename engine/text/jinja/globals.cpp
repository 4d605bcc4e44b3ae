#include "engine/text/jinja/globals.h"

#include <utility>

#include "engine/core/error.h"

namespace trireme::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

Value range(Arguments& a) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t n = a.positional.size();
  if (n < 1 || n > 3) fail("range expects one to three whole numbers");
  for (size_t i = 0; i < n; ++i)
    if (!a.positional[i].to_integer(bounds[n == 1 ? 1 : i])) fail("range expects whole numbers");
  const auto [begin, end, step] = bounds;
  if (step == 0) fail("range has a step of 0");
  List out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(out) == kMaxRange) fail(concat("a range has more than ", kMaxRange, " numbers"));
    spend(1);
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return out;
}

// Content of a dict or namespace: another dict, or pairs; then the named arguments.
Dict members_of(Arguments& a) {
  Dict out;
  if (a.positional.size() > 1) fail("dict and namespace take at most one unnamed value");
  if (!a.positional.empty() && a.positional[0].dict()) {
    spend(std::ssize(a.positional[0].dict()->items()));
    out = *a.positional[0].dict();
  } else if (!a.positional.empty()) {
    for (const Value& pair : elements_of(a.positional[0])) {
      const List parts = elements_of(pair);
      if (parts.size() != 2 || parts[0].string() == nullptr)
        fail("a dict is made of pairs of a name and a value");
      out[*parts[0].string()] = parts[1];
    }
  }
  for (auto& [name, value] : a.named) out[name] = value;
  return out;
}

Value make_dict(Arguments& a) { return members_of(a); }

Function namespaces_of(Renderer& r) {
  return [&r](Arguments& a) -> Value {
    spend(16);  // kept until the end of the rendering
    auto out = held(Object{.kind = "namespace", .can_be_set = true, .members = members_of(a)});
    r.objects.push_back(out);
    return out;
  };
}

void want_no_arguments(const Arguments& a, const char* what) {
  if (!a.positional.empty() || !a.named.empty()) fail(concat(what, " takes no arguments"));
}

// Returns its values in turn, cyclically. Its methods may outlive it.
Value make_cycler(Arguments& a) {
  if (!a.named.empty()) fail("cycler takes no named arguments");
  if (a.positional.empty()) fail("cycler expects values to choose from");
  auto out = held(Object{.kind = "cycler"});
  out->members["items"] = tuple_of(a.positional);
  const auto go = [items = a.positional, at = std::make_shared<size_t>(0),
                   self = std::weak_ptr<Object>(out)](bool reset) {
    Value now = items[*at];
    *at = reset ? 0 : (*at + 1) % items.size();
    if (const auto cycler = self.lock()) {
      cycler->members["pos"] = static_cast<int64_t>(*at);
      cycler->members["current"] = items[*at];
    }
    return now;
  };
  go(true);
  out->members["next"] =
      Function([go](Arguments& given) { return want_no_arguments(given, "next"), go(false); });
  out->members["reset"] = Function([go](Arguments& given) -> Value {
    return want_no_arguments(given, "reset"), go(true), Value();
  });
  return out;
}

// Returns "" on the first call, then the separator.
Value make_joiner(Arguments& a) {
  const bool named = a.named.size() == 1 && a.named[0].first == "sep";
  if (a.positional.size() + a.named.size() > 1 || (!a.named.empty() && !named))
    fail("joiner takes one argument, sep");
  const Value* between = a.find(0, "sep");
  auto out = held(Object{.kind = "joiner"});
  out->members["sep"] = between != nullptr ? *between : Value(", ");
  out->members["used"] = false;
  out->call = [used = std::make_shared<bool>(false), by = out->members["sep"],
               self = std::weak_ptr<Object>(out)](Arguments& given) {
    want_no_arguments(given, "a joiner");
    if (const auto joiner = self.lock()) joiner->members["used"] = true;
    return std::exchange(*used, true) ? by : Value("");
  };
  return out;
}

Value raise_exception(Arguments& a) {
  fail_input("the chat template refuses this conversation: ",
             a.positional.empty() ? "" : text_of(a.positional[0]));
}

Function strftime_at(std::time_t now) {
  return [now](Arguments& a) -> Value {
    const Value* format = a.find(0, "format");
    if (format == nullptr || format->string() == nullptr || format->string()->size() > 256)
      fail("strftime_now expects a format of at most 256 bytes");
    if (format->string()->empty()) return "";
    std::tm time{};
    if (localtime_r(&now, &time) == nullptr) fail("the current time has no date");
    char text[2048];
    return std::string(text, std::strftime(text, sizeof text, format->string()->c_str(), &time));
  };
}

}  // namespace

void set_globals(Scope& scope, Renderer& r, std::time_t now) {
  scope.set("range", Function(range));
  scope.set("dict", Function(make_dict));
  scope.set("namespace", namespaces_of(r));
  scope.set("cycler", Function(make_cycler));
  scope.set("joiner", Function(make_joiner));
  scope.set("raise_exception", Function(raise_exception));
  scope.set("strftime_now", strftime_at(now));
}

}  // namespace trireme::jinja
