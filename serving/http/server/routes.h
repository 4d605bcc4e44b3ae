// The paths a server answers, what each asks for, and who does the work.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/http/server/api_keys.h"
#include "serving/http/server/exchange.h"

namespace trireme {

struct Route {
  std::string method;  // GET (which answers HEAD too) or POST
  std::string path;    // exactly, or with a last "/*" all below it
  Access access = Access::kUser;
  // On a thread of the workers', several at a time. What it throws becomes an error's reply.
  std::function<HttpAnswer(HttpRequest&)> handle;
  // Before the body is read, and again before the request waits for a worker: throws ApiError where
  // it would be in vain. tenant: whose key. On a thread that serves connections: must not wait.
  std::function<void(const RequestHead&, const std::string& tenant)> admit = {};
  // handle() neither waits nor works for long: it is called on the thread that serves the
  // connection, however many requests wait for the workers.
  bool is_quick = false;
};

class Routes {
 public:
  void add(Route route);
  // nullptr: no route has this path. Where others' have it, `other_methods` names them: "GET, HEAD,
  // POST".
  const Route* find(std::string_view method, std::string_view path,
                    std::string& other_methods) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace trireme
