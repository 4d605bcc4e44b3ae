#include <gtest/gtest.h>

#include "serving/api/small_bodies.h"

namespace trireme::test_small_bodies {
namespace {

TEST(Bodies, ListModels) {
  const std::vector<ModelCard> cards = {
      {.id = "m", .created = 5, .max_model_len = 9, .root = "dir"}};
  EXPECT_EQ(
      model_list_body(cards),
      R"({"object":"list","data":[{"id":"m","object":"model","created":5,"owned_by":"trireme",)"
      R"("root":"dir","parent":null,"max_model_len":9}]})");
}

TEST(Bodies, TellTokens) {
  const std::vector<int32_t> tokens = {1, 2};
  EXPECT_EQ(tokenize_body(tokens, 9, {}),
            R"({"count":2,"max_model_len":9,"tokens":[1,2],"token_strs":null})");
  const auto spelling = [](int32_t token) { return token == 1 ? "a" : "b"; };
  EXPECT_EQ(tokenize_body(tokens, 9, spelling),
            R"({"count":2,"max_model_len":9,"tokens":[1,2],"token_strs":["a","b"]})");
  EXPECT_EQ(detokenize_body("x"), R"({"prompt":"x"})");
}

}  // namespace
}  // namespace trireme::test_small_bodies
