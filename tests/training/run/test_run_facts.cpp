// Ranks started with different configurations are detected, for every key.
#include <gtest/gtest.h>

#include <set>

#include "tests/training/config/config_changes.h"
#include "tests/training/config/small_run.h"
#include "training/run/run_facts.h"

namespace trireme::test_run_facts {
namespace {

using test::changed;
using test::companions;
using test::other_value;
using test::read;

TEST(RunFacts, EveryKeyThatChangesTheConfigurationIsOne) {
  const std::set<std::string> own = {"cpu.threads_per_rank",
                                     "zero_optimization.offload_optimizer.nvme_path"};
  int compared = 0;
  for (const Key& key : run_schema().keys()) {
    if (key.status != KeyStatus::kImplemented) continue;
    const std::string value = other_value(key);
    if (value.empty()) continue;
    std::vector<std::string> without = companions(key), with = without;
    with.push_back(key.path + "=" + value);
    RunConfig one, other;
    try {
      one = read(without);
      other = read(with);
    } catch (const InputError&) {
      continue;  // a key that requires others: tested with its section
    }
    if (run_config_to_json(one) == run_config_to_json(other)) continue;
    ++compared;
    EXPECT_EQ(config_facts(one) != config_facts(other), !own.contains(key.path)) << key.path;
  }
  EXPECT_GT(compared, 60);
}

TEST(RunFacts, TokenFilesCountByTheirNames) {
  const auto facts = [](const std::string& path) {
    return config_facts(read({"data.data_path=" + path}));
  };
  EXPECT_EQ(facts("a/tokens"), facts("b/tokens"));
  EXPECT_NE(facts("a/tokens"), facts("a/others"));
  EXPECT_EQ(facts("[0.5,\"a/x\",0.5,\"a/y\"]"), facts("[0.5,\"x\",0.5,\"b/y\"]"));
  EXPECT_NE(facts("[0.5,\"a/x\",0.5,\"a/y\"]"), facts("[0.25,\"a/x\",0.75,\"a/y\"]"));
  EXPECT_NE(facts("[0.5,\"a/x\",0.5,\"a/y\"]"), facts("[0.5,\"a/y\",0.5,\"a/x\"]"));
}

}  // namespace
}  // namespace trireme::test_run_facts
