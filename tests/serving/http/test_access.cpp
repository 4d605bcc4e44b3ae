#include <gtest/gtest.h>

#include <fstream>

#include "serving/http/admission.h"
#include "serving/http/api_keys.h"
#include "serving/http/routes.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_access {
namespace {

// "" where it is allowed, else status and code.
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
  EXPECT_EQ(refusal(keys, "Bearer admin-key", Access::kUser), "");
  EXPECT_EQ(refusal(keys, "Bearer admin-key", Access::kAdmin), "");
  EXPECT_EQ(refusal(keys, "Bearer user-key", Access::kAdmin), "403 admin_key_required");
  EXPECT_EQ(refusal(keys, nullptr, Access::kUser), "401 missing_api_key");
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer user-ke", "Bearer user-key ", "Bearer  user-key",
        "Bearer user-keyx", "Basic user-key", "user-key", "Bearer USER-KEY"})
    EXPECT_EQ(refusal(keys, wrong, Access::kUser), "401 invalid_api_key") << wrong;
}

TEST(ApiKeys, MakeNobodyAnAdminWithoutKeys) {
  EXPECT_EQ(refusal(ApiKeys(), nullptr, Access::kUser), "");
  EXPECT_EQ(refusal(ApiKeys(), "Bearer x", Access::kAdmin), "403 admin_key_required");
  EXPECT_EQ(refusal(ApiKeys({"user"}, {}), "Bearer user", Access::kAdmin),
            "403 admin_key_required");
  EXPECT_THROW(ApiKeys({""}, {}), InputError);
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
  write(std::string(5000, 'k'));
  EXPECT_THROW(read_api_keys(path), InputError);
  EXPECT_THROW(read_api_keys(folder.path() + "/absent"), InputError);
  EXPECT_THROW(read_api_keys("/"), InputError);
}

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

std::string refusal(Admission& admission, const std::string& tenant, int64_t sequences,
                    int64_t tokens = 0) {
  try {
    admission.enter(tenant, sequences, tokens);
  } catch (const ApiError& error) {
    EXPECT_GT(error.retry_after_ms(), 0);
    return concat(error.status(), " ", error.error_code(), " ", error.what());
  }
  return "";
}

TEST(Admission, TakesAsManyAsThereAreAndNoMore) {
  Admission admission({.running = 2, .waiting = 3});
  const auto four = admission.enter("", 4, 0);
  EXPECT_EQ(refusal(admission, "", 1), "");
  EXPECT_EQ(refusal(admission, "", 2), "429 queue_full queue full (2 waiting)");
  auto one = admission.enter("", 1, 0);
  EXPECT_THROW(admission.check(""), ApiError);
  one.reset();
  EXPECT_NO_THROW(admission.check(""));
  four->end_sequence();
  EXPECT_EQ(admission.sequences(), 3);
  EXPECT_EQ(refusal(admission, "", 2), "");
}

TEST(Admission, CountsTheTokensOfPromptsThatWait) {
  Admission admission({.running = 8, .waiting = 8, .waiting_tokens = 100});
  {
    const auto place = admission.enter("", 1, 1000);  // the first one always
    EXPECT_EQ(refusal(admission, "", 1, 1),
              "429 queue_full queue full (prompts of 1000 tokens waiting)");
    place->set_prompt_tokens(60);
    EXPECT_EQ(refusal(admission, "", 1, 40), "");
    EXPECT_NE(refusal(admission, "", 1, 41), "");
    place->set_prompt_tokens(0);
    EXPECT_EQ(refusal(admission, "", 1, 1000), "");
  }
  EXPECT_EQ(admission.prompt_tokens(), 0);
  EXPECT_EQ(admission.sequences(), 0);
}

TEST(Admission, KeepsPlacesForOtherTenants) {
  Admission admission({.running = 4, .waiting = 8, .several_tenants = true});
  const auto greedy = admission.enter("a", 10, 0);
  EXPECT_EQ(refusal(admission, "a", 1).substr(0, 3), "429");
  EXPECT_EQ(refusal(admission, "b", 2), "");
  const auto rest = admission.enter("b", 2, 0);
  EXPECT_EQ(refusal(admission, "b", 1).substr(0, 3), "503");  // full, and not by its own doing
}

// A request that may be sent can be admitted, if not now: a client tries what is refused again.
TEST(Admission, TakesWhatATenantMayHave) {
  for (const bool several : {false, true}) {
    const AdmissionLimits limits{.running = 4, .waiting = 8, .several_tenants = several};
    EXPECT_EQ(limits.of_a_tenant(), several ? 10 : 12);
    Admission admission(limits);
    EXPECT_EQ(refusal(admission, "a", static_cast<int>(limits.of_a_tenant())), "");
    EXPECT_EQ(refusal(admission, "a", static_cast<int>(limits.of_a_tenant()) + 1).substr(0, 3),
              "429");
  }
}

TEST(Admission, TakesNothingWhenClosed) {
  Admission admission({});
  EXPECT_NO_THROW(admission.check_open());
  admission.close("draining", "the server is draining");
  EXPECT_EQ(refusal(admission, "", 1), "503 draining the server is draining");
  EXPECT_THROW(admission.check_open(), ApiError);
  admission.close("", "");
  EXPECT_EQ(refusal(admission, "", 1), "");
}

}  // namespace
}  // namespace trireme::test_access
