#include "serving/web_ui/web_ui.h"

#include "serving/web_ui/web_ui_files.h"

namespace trireme {
namespace {

// Runs and loads only the page's own script and style sheet, connects only to its own server, and
// cannot be framed.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* type_of(std::string_view name) {
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return name.ends_with(".js") ? "text/javascript; charset=utf-8" : "text/html; charset=utf-8";
}

}  // namespace

void add_web_ui(Routes& routes) {
  for (const WebUiFile& file : kWebUiFiles) {
    const auto text = std::make_shared<const std::string>(file.text);
    const auto handler = [text, &file](HttpRequest&) {
      return HandlerResult{{.document = text,
                            .content_type = type_of(file.name),
                            .headers = {{"Content-Security-Policy", kPolicy},
                                        {"X-Content-Type-Options", "nosniff"},
                                        {"Referrer-Policy", "no-referrer"},
                                        {"Cache-Control", "no-cache"}}}};
    };
    const std::string path = file.name == "index.html" ? "/" : concat("/", file.name);
    routes.add({.method = "GET",
                .path = path,
                .access = Access::kOpen,
                .handle = handler,
                .is_quick = true});
  }
}

}  // namespace trireme
