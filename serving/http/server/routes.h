// Routes of a server: its paths, their requirements and handlers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/http/server/api_keys.h"
#include "serving/http/server/exchange.h"

namespace trireme {

struct Route {
  std::string method;  // GET (also serves HEAD) or POST
  std::string path;    // exact, or with a final "/*" all paths below it
  Access access = Access::kUser;
  // Runs on a worker thread, or for is_quick on the connection's; calls may run in parallel. An
  // exception becomes an error response.
  std::function<HandlerResult(HttpRequest&)> handle;
  // Early check of admission: called before the body is read, and again before the request is
  // queued for a worker. Throws ApiError if handle() would reject the request in any case. tenant:
  // name of the API key. Runs on a thread that serves connections; must not block.
  std::function<void(const RequestHead&, const std::string& tenant)> admit = {};
  // True if handle() neither blocks nor runs long. It is then called on the connection's thread,
  // even when the workers' queue is full.
  bool is_quick = false;
};

class Routes {
 public:
  void add(Route route);
  // First route added that matches; "HEAD" finds GET routes. nullptr: none. Then `other_methods`
  // lists the methods of the routes of the path, as in "GET, HEAD, POST"; "": it has none.
  const Route* find(std::string_view method, std::string_view path,
                    std::string& other_methods) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace trireme
