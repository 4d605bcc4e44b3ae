// Bracket classes with Oniguruma's syntax.
#include <utility>

#include "engine/core/error.h"
#include "engine/text/regex_cursor.h"

namespace trireme {
namespace {

constexpr size_t kMaxPosixName = 20;

class ClassReader {
 public:
  explicit ClassReader(PatternCursor& cursor) : c_(cursor) {}
  CharacterSet read();

 private:
  // kValue: first_ is a member that may begin a range; kRange: a hyphen follows it.
  enum class State { kStart, kValue, kRange, kSet, kComplete };
  void read_item();
  void read_escape();
  void read_hyphen();
  bool read_posix();
  void add_value(char32_t c);
  void add_set(CharacterSet set, State next);
  void settle();

  PatternCursor& c_;
  CharacterSet set_;
  State state_ = State::kStart;
  char32_t first_ = 0;
};

CharacterSet ClassReader::read() {
  if (++c_.depth > kMaxPatternDepth) c_.refuse("nesting this deep");
  const bool negated = c_.take("^");
  std::vector<CharacterSet> others;
  // A "]" at the start is a member if another one closes the class.
  if (c_.peek() == ']') {
    if (c_.text.find(']', c_.at + 1) == std::string_view::npos) c_.fail("a class is empty");
    ++c_.at;
    add_value(']');
  }
  while (!c_.take("]")) {
    if (c_.done()) c_.fail("a class has no end");
    if (!c_.take("&&")) {
      read_item();
      continue;
    }
    settle();
    others.push_back(std::exchange(set_, {}));
    state_ = State::kStart;
  }
  settle();
  set_.intersected = std::move(others);
  set_.negated = negated;
  --c_.depth;
  return std::move(set_);
}

void ClassReader::read_item() {
  if (read_posix()) return;
  if (c_.take("["))
    add_set(ClassReader(c_).read(), State::kComplete);
  else if (c_.take("\\"))
    read_escape();
  else if (c_.take("-"))
    read_hyphen();
  else
    add_value(c_.take_character());
}

void ClassReader::read_escape() {
  if (c_.done()) c_.fail("it ends with a backslash");
  CharacterSet set;
  std::u32string codes;
  if (read_set_escape(c_, true, set))
    add_set(std::move(set), State::kSet);
  else if (read_code_escape(c_, true, codes))
    for (const char32_t c : codes) add_value(c);
  else
    add_value(c_.take_character());
}

void ClassReader::read_hyphen() {
  const bool is_last = c_.peek() == ']' || c_.text.substr(c_.at).starts_with("&&");
  if (state_ == State::kValue && !is_last)
    state_ = State::kRange;
  else
    add_value('-');
}

// [:name:] and [:^name:]; false, with nothing consumed, if it is a set that starts with a colon.
bool ClassReader::read_posix() {
  if (!c_.text.substr(c_.at).starts_with("[:")) return false;
  const size_t end = c_.text.find(":]", c_.at + 2);
  if (end == std::string_view::npos || end - c_.at - 2 > kMaxPosixName) return false;
  std::string name(c_.text.substr(c_.at + 2, end - c_.at - 2));
  const bool negated = name.starts_with('^');
  if (negated) name.erase(0, 1);
  for (const char c : name)
    if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z')) return false;
  CharacterSet set;
  if (!posix_set(name, set)) c_.fail(concat("the POSIX class \"", name, "\" is unknown"));
  set.negated = negated;
  c_.at = end + 2;
  add_set(std::move(set), State::kSet);
  return true;
}

void ClassReader::add_value(char32_t c) {
  if (state_ == State::kRange) {
    if (first_ > c) c_.fail("a range in a class is empty");
    set_.ranges.emplace_back(first_, c);
    state_ = State::kComplete;
    return;
  }
  settle();
  first_ = c;
  state_ = State::kValue;
}

void ClassReader::add_set(CharacterSet set, State next) {
  if (state_ == State::kRange) c_.refuse("a range to a set in a class");
  settle();
  set_.add(std::move(set));
  state_ = next;
}

void ClassReader::settle() {
  if (state_ == State::kValue) set_.add(first_);
  state_ = State::kComplete;
}

}  // namespace

CharacterSet read_class(PatternCursor& cursor) { return ClassReader(cursor).read(); }

}  // namespace trireme
