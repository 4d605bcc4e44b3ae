#include <gtest/gtest.h>

#include "engine/config/schema.h"
#include "engine/core/error.h"

namespace trireme::test_schema {
namespace {

TEST(Paths, SplitAndJoin) {
  EXPECT_EQ(parent_path("a.b.c"), "a.b");
  EXPECT_EQ(parent_path("a"), "");
  EXPECT_EQ(leaf_name("a.b.c"), "c");
  EXPECT_EQ(leaf_name("a"), "a");
  EXPECT_EQ(join_path("", "a"), "a");
  EXPECT_EQ(join_path("a.b", "c"), "a.b.c");
}

TEST(Schema, NearestPrefersSiblingsThenTheSameNameElsewhere) {
  Schema s("t");
  s.integer("a.save", "1", "h");
  s.integer("a.load", "1", "h");
  s.integer("b.save_all", "1", "h");
  s.integer("b.rate", "1", "h").alias({"b.ratio"});
  s.finish();
  EXPECT_EQ(s.nearest("a.svae"), std::vector<std::string>{"save"});
  EXPECT_EQ(s.nearest("b.save"), std::vector<std::string>{"a.save"});
  EXPECT_EQ(s.nearest("rate"), std::vector<std::string>{"b.rate"});
  EXPECT_EQ(s.nearest("b.ratiq"), std::vector<std::string>{"ratio"});
  EXPECT_TRUE(s.nearest("zzzzzz").empty());
  EXPECT_TRUE(s.nearest("a.").empty());
}

// A contradictory table is a bug, detected when the schema is first built.
TEST(Schema, FinishRefusesContradictions) {
  const auto refused = [](auto&& fill) {
    Schema s("t");
    fill(s);
    EXPECT_THROW(s.finish(), Error);
  };
  refused([](Schema& s) { s.integer("a", "1", ""); });
  refused([](Schema& s) { s.integer("a", "1", "h"), s.integer("a", "1", "h"); });
  refused([](Schema& s) { s.integer("a", "1", "h"), s.integer("b", "1", "h").alias({"a"}); });
  refused([](Schema& s) { s.integer("a", "1", "h"), s.integer("a.b", "1", "h"); });
  refused([](Schema& s) { s.integer("a", "1", "h").required(); });
  refused([](Schema& s) { s.choice("a", "x", {"x"}, "h").synonym("y", "z"); });
}

}  // namespace
}  // namespace trireme::test_schema
