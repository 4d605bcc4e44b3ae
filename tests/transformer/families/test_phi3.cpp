#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_phi3 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;

TEST(Families, Phi4MiniAsPublished) {
  const PublishedConfig got = test::read_valid(test::published_file("phi-4-mini"));
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.rotary_dim, 96);
  EXPECT_EQ(c.rope_scaling.type, RopeType::kLongRope);
  EXPECT_EQ(c.rope_scaling.original_positions, 4096);
  EXPECT_EQ(c.rope_scaling.factor, 32);
  EXPECT_EQ(c.rope_scaling.long_factors.at(47), 47.77);
  EXPECT_EQ(c.rope_scaling.short_factors.at(47), 1);
  EXPECT_EQ(c.window(31), 262144);
  EXPECT_TRUE(c.tie_word_embeddings);
  expect_round_trip(c);
}

TEST(Families, Phi35RotatesWholeHeads) {
  const PublishedConfig got = test::read_valid(test::published_file("phi-3.5-mini"));
  EXPECT_EQ(got.config.rotary_dim, 0);
  EXPECT_EQ(got.config.head_dim, 96);
  expect_round_trip(got.config);
}

TEST(Families, WhatPhi3CannotBe) {
  const std::string published = test::published_file("phi-4-mini");
  const auto scaled = [&](const std::string& keys) {
    return published_problem(published, concat(R"("rope_scaling": {)", keys, "}"));
  };
  EXPECT_EQ(scaled(R"("type": "linear", "factor": 2)"),
            "model.rope_scaling.type: is not default or longrope, the types of this family");
  EXPECT_EQ(published_problem(published, R"("full_attn_mod": 2)"),
            "model.full_attn_mod: 2 is not available in this version (layers with other "
            "attention); only 1 is");
  Json longrope = parse_json(published, "test")["rope_scaling"];
  const auto with = [&](const char* key, Json value) {
    Json changed = longrope;
    changed[key] = std::move(value);
    return published_problem(published, concat(R"("rope_scaling": )", changed.dump()));
  };
  EXPECT_EQ(with("long_factor", Json::array({1, 2})),
            "model.rope_scaling.long_factor: is [1,2], expected a list of 48 numbers above 0, one "
            "for each frequency");
  EXPECT_EQ(with("short_factor", Json()),
            "model.rope_scaling.short_factor: is required by rope_type longrope");
  longrope["long_factor"][3] = 0;
  EXPECT_NE(with("type", "longrope").find("expected a list of 48 numbers above 0"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::test_phi3
