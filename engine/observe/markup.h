// Escaping of arbitrary text for SVG, HTML and scripts.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// & < > " ' become entities; bytes below 32 except tab and newline are dropped (not allowed in
// XML).
std::string escape_markup(std::string_view plain);
// JSON text that is safe inside a <script> element: "</script>" cannot occur in it.
std::string json_for_script(const std::string& json);

}  // namespace trireme
