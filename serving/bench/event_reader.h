// Incremental parser of server-sent events (WHATWG HTML, 9.2.6). Keeps only their data.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme {

class EventReader {
 public:
  // most_bytes: size limit of one event; InputError above it.
  explicit EventReader(size_t most_bytes) : most_bytes_(most_bytes) {}
  // Calls `event` with the data of each event that `bytes` completes.
  void feed(std::string_view bytes, const std::function<void(const std::string&)>& event);

 private:
  void end_line(const std::function<void(const std::string&)>& event);

  size_t most_bytes_;
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false;
};

}  // namespace trireme
