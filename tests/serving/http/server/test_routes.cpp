#include <gtest/gtest.h>

#include "serving/http/server/routes.h"

namespace trireme::test_routes {
namespace {

TEST(Routes, AreFoundByPathAndMethod) {
  Routes routes;
  for (const auto& [method, path] :
       {std::pair("GET", "/a"), std::pair("POST", "/a"), std::pair("GET", "/b/*")})
    routes.add({.method = method, .path = path, .handle = {}});
  std::string others;
  EXPECT_EQ(routes.find("GET", "/a", others)->method, "GET");
  EXPECT_EQ(routes.find("HEAD", "/a", others)->method, "GET");
  EXPECT_EQ(routes.find("POST", "/a", others)->method, "POST");
  EXPECT_EQ(routes.find("GET", "/b/c/d", others)->path, "/b/*");
  EXPECT_EQ(routes.find("DELETE", "/a", others), nullptr);
  EXPECT_EQ(others, "GET, HEAD, POST");
  for (const char* path : {"/", "/b", "/b/", "/A", "/a/", "/aa", ""}) {
    EXPECT_EQ(routes.find("GET", path, others), nullptr) << path;
    EXPECT_EQ(others, "") << path;
  }
}

}  // namespace
}  // namespace trireme::test_routes
