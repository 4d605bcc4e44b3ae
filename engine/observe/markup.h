// Escaping of arbitrary text for SVG, HTML and scripts.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// & < > " ' become entities; bytes below 32 except tab and newline are dropped (not allowed in
// XML).
std::string escape_markup(std::string_view plain);
// Equivalent JSON text that is safe inside a <script> element: '<' is written as \u003c, so that
// "</script>" cannot occur in it.
std::string json_for_script(const std::string& json);

}  // namespace trireme
