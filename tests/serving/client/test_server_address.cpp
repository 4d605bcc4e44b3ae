#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/client/server_address.h"

namespace trireme::test_server_address {
namespace {

TEST(ServerAddress, IsReadAsItIsMeant) {
  const ServerAddress full = parse_server_address("https://[::1]:8443/api/", "--server");
  EXPECT_TRUE(full.tls);
  EXPECT_EQ(full.host, "::1");
  EXPECT_EQ(full.port, "8443");
  EXPECT_EQ(full.base, "/api");
  EXPECT_EQ(full.authority(), "[::1]:8443");
  EXPECT_EQ(full.url(), "https://[::1]:8443/api");
  EXPECT_EQ(parse_server_address("http://a", "--server").port, "80");
  EXPECT_EQ(parse_server_address("https://a/", "--server").url(), "https://a:443");
  for (const char* wrong : {"", "a:1", "ftp://a", "http://", "http://:1", "http://a:", "http://a:0",
                            "http://a:65536", "http://a:1x", "http://[::1", "http://[::1]x",
                            "http://u@a", "http://a/?q", "http://a b", "http://a\r\nX: y"})
    EXPECT_THROW(parse_server_address(wrong, "--server"), InputError) << wrong;
}

}  // namespace
}  // namespace trireme::test_server_address
