// Server-sent events out of the pieces they come in (WHATWG HTML, 9.2.6). Only their data is kept.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme {

class EventReader {
 public:
  // most_bytes: of one event; InputError beyond.
  explicit EventReader(size_t most_bytes) : most_bytes_(most_bytes) {}
  // Calls `event` for every event that is complete now.
  void feed(std::string_view bytes, const std::function<void(const std::string&)>& event);

 private:
  void end_line(const std::function<void(const std::string&)>& event);

  size_t most_bytes_;
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false;
};

}  // namespace trireme
