#include "serving/api/sse_frame.h"

namespace trireme {

std::string sse_frame(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 8);
  return out.append("data: ").append(data).append("\n\n");
}

}  // namespace trireme
