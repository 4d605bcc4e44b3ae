// Event of a stream of server-sent events.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

std::string sse_frame(std::string_view data);

}  // namespace trireme
