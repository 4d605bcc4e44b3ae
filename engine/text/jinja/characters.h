// Characters of template strings: UTF-8, which may contain marks.
//
// A mark is the byte 0xFF, which never occurs in UTF-8. It belongs to the character before it: it
// is kept or removed with that character, and is neither counted nor compared. A split at a
// separator, or a replacement, drops it; if it had marks, the text after it starts with one, which
// then belongs to its first character, so that the joined text still has a mark there.
// ConversationWriter marks the special tokens spelled in messages.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::jinja {

inline constexpr char kMark = '\xFF';

// Returns the position after the character at `at` and its marks.
size_t next_place(std::string_view text, size_t at);
bool has_marks(std::string_view text);
std::string without_marks(std::string_view text);

// Range over a text's characters, each as the part of the text with its marks.
class Characters {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    Iterator(std::string_view text, size_t at) : text_(text), at_(at) { find_end(); }
    std::string_view operator*() const { return text_.substr(at_, end_ - at_); }
    Iterator& operator++() { return at_ = end_, find_end(), *this; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    void find_end() { end_ = at_ < text_.size() ? next_place(text_, at_) : at_; }
    std::string_view text_;
    size_t at_, end_ = 0;
  };
  // Spends steps for the iteration (spend_bytes).
  explicit Characters(std::string_view text);
  Iterator begin() const { return {text_, 0}; }
  Iterator end() const { return {text_, text_.size()}; }

 private:
  std::string_view text_;
};

// Searches a text as if it had no marks, in time linear in the text. Offsets refer to plain(). The
// text must outlive this object.
class Search {
 public:
  explicit Search(const std::string& text);
  const std::string& plain() const { return marks_.empty() ? text_ : plain_; }
  // Returns the first occurrence at or after `from`, or the last one that ends at or before
  // `until`; npos if there is none. `part` must have no marks.
  size_t find(std::string_view part, size_t from = 0) const;
  size_t find_last(std::string_view part, size_t until = std::string::npos) const;
  // Returns the text in [begin, end) with its marks. removed: number of bytes before `begin` that
  // are dropped; if they had marks, the result starts with one.
  std::string cut(size_t begin, size_t end = std::string::npos, size_t removed = 0) const;

 private:
  size_t marked(size_t at) const;
  const std::string& text_;
  std::string plain_;          // set if there are marks
  std::vector<size_t> marks_;  // offsets into plain_, each before which a mark is
};

}  // namespace trireme::jinja
