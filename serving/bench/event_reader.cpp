#include "serving/bench/event_reader.h"

#include "engine/core/error.h"

namespace trireme {

void EventReader::feed(std::string_view bytes,
                       const std::function<void(const std::string&)>& event) {
  while (!bytes.empty()) {
    // A line ends with CR, LF or CRLF.
    if (after_return_ && bytes[0] == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + data_.size() + end > max_bytes_)
      fail_input("an event of a stream is larger than ", max_bytes_, " bytes");
    line_.append(bytes.substr(0, end));
    if (end == bytes.size()) return;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(event);
  }
}

void EventReader::end_line(const std::function<void(const std::string&)>& event) {
  if (line_.empty()) {
    if (has_data_) event(data_);
    data_.clear();
    has_data_ = false;
  } else if (line_ == "data" || line_.starts_with("data:")) {
    if (has_data_) data_ += '\n';
    has_data_ = true;
    data_.append(line_, std::min(line_.size(), line_.starts_with("data: ") ? size_t{6} : 5));
  }
  line_.clear();
}

}  // namespace trireme
