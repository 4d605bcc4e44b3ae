// Incremental parser of server-sent events (WHATWG HTML, 9.2.6). Keeps only their data.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme {

class EventReader {
 public:
  // max_bytes: size limit of one event; InputError above it.
  explicit EventReader(size_t max_bytes) : max_bytes_(max_bytes) {}
  // Calls `event` with the data of each event that `bytes` completes; several data lines are joined
  // by LF. Events without data are dropped.
  void feed(std::string_view bytes, const std::function<void(const std::string&)>& event);

 private:
  void end_line(const std::function<void(const std::string&)>& event);

  size_t max_bytes_;
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false;
};

}  // namespace trireme
