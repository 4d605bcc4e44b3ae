#include "serving/http/server/routes.h"

namespace trireme {
namespace {

bool matches(const std::string& pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  const std::string_view stem = std::string_view(pattern).substr(0, pattern.size() - 1);
  return path.size() > stem.size() && path.starts_with(stem);
}

}  // namespace

void Routes::add(Route route) { routes_.push_back(std::move(route)); }

const Route* Routes::find(std::string_view method, std::string_view path,
                          std::string& other_methods) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  other_methods.clear();
  for (const Route& route : routes_) {
    if (!matches(route.path, path)) continue;
    if (route.method == wanted) return &route;
    if (!other_methods.empty()) other_methods += ", ";
    other_methods += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return nullptr;
}

}  // namespace trireme
