// Characters of a template's strings: UTF-8, in which marks may stand.
//
// A mark is the byte 0xFF, which no UTF-8 has. It belongs to the character before it: it is kept
// and cut off with that character, and is neither counted nor compared. Where a text is cut at a
// part that has marks, one stands before the rest, and belongs to the first character there: put
// together again, the text still has it. ConversationWriter guards what a message spells by marks.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::jinja {

inline constexpr char kMark = '\xFF';

// Behind the character at `at` and its marks.
size_t next_place(std::string_view text, size_t at);
bool has_marks(std::string_view text);
std::string without_marks(std::string_view text);

// A walk over a text's characters, each as the part of the text that it is with its marks.
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
  // Pays for the walk (spend_bytes).
  explicit Characters(std::string_view text);
  Iterator begin() const { return {text_, 0}; }
  Iterator end() const { return {text_, text_.size()}; }

 private:
  std::string_view text_;
};

// Finds parts of a text as if there were no marks, in time linear in the text. Offsets are those of
// plain(). The text must outlive this object.
class Search {
 public:
  explicit Search(const std::string& text);
  const std::string& plain() const { return marks_.empty() ? text_ : plain_; }
  // The first at or after `from`, the last that ends at or before `until`; npos where there is
  // none. `part` is plain.
  size_t find(std::string_view part, size_t from = 0) const;
  size_t find_last(std::string_view part, size_t until = std::string::npos) const;
  // The text from one offset to another, with its marks, and behind so many bytes that are taken
  // out.
  std::string cut(size_t begin, size_t end = std::string::npos, size_t removed = 0) const;

 private:
  size_t marked(size_t at) const;
  const std::string& text_;
  std::string plain_;          // where there are marks
  std::vector<size_t> marks_;  // offsets into plain_ that marks stand before
};

}  // namespace trireme::jinja
