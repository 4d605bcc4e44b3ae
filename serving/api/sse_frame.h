// Frame of a server-sent event: its bytes in the stream. The data must have no line breaks.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

std::string sse_frame(std::string_view data);

}  // namespace trireme
