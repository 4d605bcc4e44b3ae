#include <gtest/gtest.h>

#include <fstream>

#include "engine/core/error.h"
#include "serving/http/server/api_keys.h"
#include "serving/http/server/routes.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_api_keys {
namespace {

// "" where it is allowed, else status and error code.
std::string refusal(const ApiKeys& keys, const char* authorization, Access access) {
  const std::string given = authorization == nullptr ? "" : authorization;
  try {
    keys.check(authorization == nullptr ? nullptr : &given, access);
  } catch (const ApiError& error) {
    return concat(error.status(), " ", error.error_code());
  }
  return "";
}

TEST(ApiKeys, LetInWhoHasTheRightKey) {
  const ApiKeys keys({"user-key", "other"}, {"admin-key"});
  EXPECT_EQ(refusal(keys, nullptr, Access::kOpen), "");
  EXPECT_EQ(refusal(keys, "Bearer user-key", Access::kUser), "");
  EXPECT_EQ(refusal(keys, "bearer other", Access::kUser), "");
  EXPECT_EQ(refusal(keys, "BEARER   user-key", Access::kUser), "");  // one or more spaces
  EXPECT_EQ(refusal(keys, "Bearer admin-key", Access::kUser), "");
  EXPECT_EQ(refusal(keys, "Bearer admin-key", Access::kAdmin), "");
  EXPECT_EQ(refusal(keys, "Bearer user-key", Access::kAdmin), "403 admin_key_required");
  EXPECT_EQ(refusal(keys, nullptr, Access::kUser), "401 missing_api_key");
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer user-ke", "Bearer user-key ", "Bearer  ",
        "Bearer\tuser-key", "Bearer user-keyx", "Basic user-key", "user-key", "Bearer USER-KEY"})
    EXPECT_EQ(refusal(keys, wrong, Access::kUser), "401 invalid_api_key") << wrong;
}

TEST(ApiKeys, MakeNobodyAnAdminWithoutKeys) {
  EXPECT_EQ(refusal(ApiKeys(), nullptr, Access::kUser), "");
  EXPECT_EQ(refusal(ApiKeys(), "Bearer x", Access::kAdmin), "403 admin_key_required");
  EXPECT_EQ(refusal(ApiKeys({"user"}, {}), "Bearer user", Access::kAdmin),
            "403 admin_key_required");
  EXPECT_THROW(ApiKeys({""}, {}), InputError);
  for (const Access access : {Access::kAdmin, Access::kMetrics}) {
    const std::string user = "Bearer user";
    try {
      (void)ApiKeys({"user"}, {}).check(&user, access);
      ADD_FAILURE() << "a user is an admin";
    } catch (const ApiError& error) {
      EXPECT_NE(std::string(error.what()).find("--admin-api-key"), std::string::npos);
    }
  }
}

TEST(ApiKeys, NameTenantsWithoutTheirKeys) {
  const ApiKeys keys({"secret-a", "secret-b"}, {});
  const std::string a = "Bearer secret-a", b = "Bearer secret-b";
  EXPECT_EQ(keys.check(&a, Access::kUser), keys.check(&a, Access::kUser));
  EXPECT_NE(keys.check(&a, Access::kUser), keys.check(&b, Access::kUser));
  EXPECT_EQ(keys.check(&a, Access::kUser).find("secret"), std::string::npos);
}

TEST(ApiKeys, AreReadFromFiles) {
  const test::ScratchDirectory folder;
  const std::string path = folder.path() + "/keys";
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("# ours\n\none\r\n  two words \n#three\n");
  EXPECT_EQ(read_api_keys(path), (std::vector<std::string>{"one", "two words"}));
  write("# none\n");
  EXPECT_THROW(read_api_keys(path), InputError);
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += concat("key-", i, "\n");
  write(many + "# and no more\n");
  EXPECT_EQ(read_api_keys(path).size(), 10'000u);
  const auto refusal_of = [&](const std::string& text) {
    write(text);
    try {
      read_api_keys(path);
      return std::string();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_TRUE(refusal_of(many + "one-more\n").ends_with("; remove those from line 10001 on"));
  EXPECT_EQ(refusal_of(many), "");
  for (const char* begin : {"", "#", " "}) {
    const std::string long_line = begin + std::string(5000, 'k');
    EXPECT_TRUE(refusal_of("one\n" + long_line)
                    .ends_with(" bytes in line 2; put one key of at most 4096 bytes in each line"))
        << begin;
  }
  EXPECT_EQ(refusal_of("one\n#" + std::string(4095, 'k')), "");
  EXPECT_THROW(read_api_keys(folder.path() + "/absent"), InputError);
  EXPECT_THROW(read_api_keys("/"), InputError);
}

}  // namespace
}  // namespace trireme::test_api_keys
