#include "engine/observe/markup.h"

namespace trireme {

std::string escape_markup(std::string_view plain) {
  std::string out;
  out.reserve(plain.size());
  for (const char c : plain) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string json_for_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";  // JSON has '<' only inside strings
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace trireme
