// Section "outer" of the run configuration.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parallel/outer/outer_algorithms.h"
#include "tests/training/config/small_run.h"
#include "training/config/outer.h"

namespace trireme::test_outer {
using test::joined;
using test::problem;
using test::read;
using test::refusal;

namespace {

std::vector<std::string> with(const std::vector<std::string>& more, int sites = 2) {
  return joined({concat("outer.sites=", sites)}, more);
}

TEST(OuterConfig, IsOffByDefault) {
  EXPECT_FALSE(read({}, 4).outer.enabled());
  EXPECT_EQ(read({}, 4).parallel.dp, 4);
  const RunConfig one = read(with({"outer.period=3"}, 1), 4);
  EXPECT_FALSE(one.outer.enabled());
  EXPECT_EQ(one.notes, std::vector<std::string>{"outer.period: has no effect with outer.sites 1"});
  EXPECT_EQ(trajectory_hash(one), trajectory_hash(read({}, 4)));
  EXPECT_EQ(read(with({"outer.compression.method=quantize"}, 1), 4).notes.size(), 1u);
}

TEST(OuterConfig, SitesDivideRanksAndBatch) {
  const RunConfig config = read(with({"parallel.tensor_model_parallel_size=2"}, 3), 12);
  EXPECT_EQ(config.parallel.dp, 2);
  EXPECT_EQ(config.train_batch_size, 12);
  EXPECT_EQ(config.micro_batch_size, 2);
  EXPECT_EQ(run_config_to_json(resolved_run_config(run_config_to_json(config))),
            run_config_to_json(config));
  EXPECT_EQ(problem(with({"train_micro_batch_size_per_gpu=4", "gradient_accumulation_steps=1"}), 4),
            "train_batch_size: 12 is not train_micro_batch_size_per_gpu 4 x "
            "gradient_accumulation_steps 1 x 2 data-parallel ranks x 2 sites = 16; leave one of "
            "the three out, or write \"auto\"");
  const auto refusal = [](int sites, int ranks) { return problem(with({}, sites), ranks); };
  EXPECT_EQ(refusal(3, 4),
            "outer.sites: 3 does not divide the 4 ranks of the run; set it to 2 or 4, or use 3 or "
            "6 ranks");
  EXPECT_EQ(refusal(4, 1),
            "outer.sites: 4 does not divide the 1 ranks of the run; set it to 1, or use 4 ranks");
  EXPECT_EQ(refusal(5, 12),
            "outer.sites: 5 does not divide the 12 ranks of the run; set it to 4 or 6, or use 10 "
            "or 15 ranks");
}

TEST(OuterConfig, IsDescribedInTheLog) {
  const auto line = [](const std::vector<std::string>& assignments, int sites, int ranks) {
    return describe_outer(read(with(assignments, sites), sites * ranks).outer, ranks);
  };
  EXPECT_EQ(line({}, 2, 1),
            "outer: 2 sites of 1 rank each, algorithm diloco, period 100 steps, updates not "
            "compressed");
  EXPECT_EQ(line({"outer.algorithm=average", "outer.period=1", "outer.warmup_steps=30",
                  "outer.compression.method=quantize", "outer.compression.block=16"},
                 4, 3),
            "outer: 4 sites of 3 ranks each, algorithm average, period 1 step, warm-up 30 steps, "
            "updates compressed by quantize (bits 8, block 16)");
  EXPECT_EQ(line({"outer.algorithm=streaming_diloco", "outer.period=6",
                  "outer.compression.method=powersgd"},
                 2, 2),
            "outer: 2 sites of 2 ranks each, algorithm streaming_diloco, period 6 steps, "
            "2 fragments, overlap 5 steps, updates compressed by powersgd (rank 4)");
  EXPECT_NE(line({"outer.compression.method=top_k"}, 2, 1).find("top_k (ratio 0.01)"),
            std::string::npos);
}

TEST(OuterConfig, EveryAlgorithmIsReadAndWritten) {
  for (const OuterAlgorithm& row : outer_algorithms()) {
    const RunConfig config = read(with({concat("outer.algorithm=", row.name)}, 4), 4);
    EXPECT_EQ(config.outer.algorithm, row.name);
    EXPECT_EQ(config.outer.lr, row.lr);
    EXPECT_EQ(config.outer.momentum, row.momentum(4));
    EXPECT_EQ(config.outer.nesterov, row.nesterov);
    const Json json = run_config_to_json(config);
    EXPECT_EQ(run_config_to_json(read_run_config(json, 4)), json);
    EXPECT_NE(trajectory_hash(config), trajectory_hash(read({}, 4)));
  }
  EXPECT_EQ(read(with({}), 2).outer.algorithm, "diloco");
}

// Another number of sites continues a run, also one; other keys do not.
TEST(OuterConfig, SitesAreNoPartOfTheTrajectory) {
  const auto same = [](const std::vector<std::string>& assignments, int sites, int others = 2) {
    return same_trajectory(read(with(assignments, sites), 4), read(with({}, others), 4));
  };
  EXPECT_TRUE(same({}, 4));
  EXPECT_TRUE(same({}, 1));
  EXPECT_TRUE(same({}, 4, 1));
  EXPECT_FALSE(same({"seed=3"}, 2));
  EXPECT_FALSE(same({"seed=3"}, 1));
  for (const char* change :
       {"outer.period=7", "outer.lr=0.5", "outer.momentum=0.5", "outer.nesterov=false",
        "outer.warmup_steps=3", "outer.compression.method=quantize"})
    EXPECT_FALSE(same({change}, 2)) << change;
  const auto of_bmuf = [](int sites, const std::vector<std::string>& more = {}) {
    return read(with(joined({"outer.algorithm=block_momentum"}, more), sites), 4);
  };
  EXPECT_TRUE(same_trajectory(of_bmuf(2), of_bmuf(4)));
  EXPECT_FALSE(same_trajectory(of_bmuf(2), of_bmuf(4, {"outer.momentum=0.1"})));
}

TEST(OuterConfig, RoundsFollowTheirPeriod) {
  OuterConfig outer = read(with({"outer.period=5", "outer.warmup_steps=2"}), 2).outer;
  std::vector<int64_t> rounds;
  for (int64_t step = 1; step <= 13; ++step)
    if (outer.is_round(step, 13)) rounds.push_back(step);
  EXPECT_EQ(rounds, (std::vector<int64_t>{1, 2, 5, 10, 13}));
  outer.sites = 1;
  EXPECT_FALSE(outer.is_round(5, 13));
}

TEST(OuterConfig, StreamingHasDefaultsThatFit) {
  const auto streamed = [](const std::vector<std::string>& more) {
    return read(with(joined({"outer.algorithm=streaming_diloco"}, more)), 2).outer;
  };
  EXPECT_EQ(streamed({}).fragments, 2);  // layers
  EXPECT_EQ(streamed({}).overlap_steps, 5);
  EXPECT_EQ(streamed({}).mixing, 0.5);
  EXPECT_EQ(streamed({"outer.period=1"}).fragments, 1);
  EXPECT_EQ(streamed({"outer.period=1"}).overlap_steps, 0);
  EXPECT_EQ(streamed({"outer.period=1"}).mixing, 0);
  const OuterConfig plain = read(with({}), 2).outer;
  EXPECT_EQ(plain.fragments, 1);
  EXPECT_EQ(plain.overlap_steps, 0);
}

TEST(OuterConfig, FragmentsAreSpreadOverThePeriod) {
  const OuterConfig outer = read(with({"outer.period=7", "outer.fragments=2"}), 2).outer;
  std::vector<int64_t> first, second;
  for (int64_t step = 1; step <= 20; ++step) {
    if (outer.is_round(step, 20, 0)) first.push_back(step);
    if (outer.is_round(step, 20, 1)) second.push_back(step);
  }
  EXPECT_EQ(first, (std::vector<int64_t>{7, 14, 20}));
  EXPECT_EQ(second, (std::vector<int64_t>{3, 10, 17, 20}));
}

std::vector<std::string> remote(const std::vector<std::string>& more = {}) {
  return with(
      joined({"outer.site=1", "outer.rendezvous=host:29400", "outer.secret_file=secret"}, more));
}

TEST(OuterConfig, SiteIsAJobOfItsOwn) {
  const RunConfig config = read(remote({"outer.timeout_s=5"}), 3);
  EXPECT_TRUE(config.outer.is_remote());
  EXPECT_EQ(config.outer.sites, 2);
  EXPECT_EQ(config.outer.sites_in_job(), 1);
  EXPECT_EQ(config.outer.site, 1);
  EXPECT_EQ(config.outer.rendezvous, "host:29400");
  EXPECT_EQ(config.outer.secret_file, "secret");
  EXPECT_EQ(config.outer.timeout_s, 5);
  EXPECT_EQ(config.parallel.dp, 3);
  EXPECT_EQ(config.train_batch_size, 12);
  EXPECT_EQ(config.micro_batch_size * config.gradient_accumulation_steps, 2);
  EXPECT_EQ(describe_outer(config.outer, 3),
            "outer: site 1 of 2, rendezvous host:29400, algorithm diloco, period 100 steps, "
            "updates not compressed");
  EXPECT_FALSE(read(with({}), 2).outer.is_remote());
  EXPECT_EQ(read(with({}), 2).outer.sites_in_job(), 2);
}

TEST(OuterConfig, RemoteSiteIsReadAndWritten) {
  for (const int ranks : {1, 2, 3, 6}) {
    const RunConfig config = read(remote({"outer.timeout_s=2.5"}), ranks);
    const Json json = run_config_to_json(config);
    EXPECT_EQ(json["outer"]["site"], 1);
    EXPECT_EQ(json["outer"]["timeout_s"], 2.5);
    const RunConfig again = resolved_run_config(json);
    EXPECT_EQ(run_config_to_json(again), json) << ranks << " ranks";
    EXPECT_EQ(again.parallel.dp, ranks);
    EXPECT_TRUE(again.outer.is_remote());
  }
  const Json split = run_config_to_json(read(remote({"parallel.tensor_model_parallel_size=2"}), 4));
  EXPECT_EQ(run_config_to_json(resolved_run_config(split)), split);
  EXPECT_FALSE(run_config_to_json(read(with({}), 2))["outer"].contains("site"));
}

TEST(OuterConfig, RemoteKeysAreNoPartOfTheTrajectory) {
  const std::string local = trajectory_hash(read(with({}), 2));
  for (const char* change :
       {"outer.site=0", "outer.rendezvous=other:1", "outer.secret_file=other", "outer.timeout_s=7"})
    EXPECT_EQ(trajectory_hash(read(remote({change}), 2)), local) << change;
  EXPECT_EQ(trajectory_hash(read(remote(), 3)), local);
  EXPECT_NE(trajectory_hash(read(remote({"outer.period=7"}), 2)), local);
  EXPECT_TRUE(same_trajectory(read(remote(), 1), read(with({}), 2)));
}

TEST(OuterConfig, RefusesRemoteSitesThatDoNotFit) {
  EXPECT_EQ(refusal(remote({"outer.site=2"})), "outer.site: 2 is not below outer.sites 2");
  EXPECT_EQ(refusal(with({"outer.rendezvous=host:1"})),
            "outer.rendezvous: needs outer.site, the index of this site");
  EXPECT_EQ(refusal(with({"outer.secret_file=secret"})),
            "outer.secret_file: needs outer.site, the index of this site");
  EXPECT_EQ(refusal(with({"outer.site=0", "outer.secret_file=secret"})),
            "outer.rendezvous: is required with outer.site: the HOST:PORT that trireme rendezvous "
            "prints");
  EXPECT_EQ(refusal(with({"outer.site=0", "outer.rendezvous=host:1"})),
            "outer.secret_file: is required with outer.site: the file that trireme rendezvous has");
  for (const char* address : {"host", "host:", ":1", "host:0", "host:65536", "host:-1", "host:x"})
    EXPECT_EQ(
        refusal(remote({concat("outer.rendezvous=", address)})),
        concat("outer.rendezvous: \"", address, "\" is not HOST:PORT, a port being 1 to 65535"));
  EXPECT_EQ(refusal(remote({"outer.rendezvous=[::1]:65535"})), "");
  EXPECT_EQ(
      refusal(remote({"outer.timeout_s=20", "comm.timeout=20"})),
      "outer.timeout_s: 20 is not below comm.timeout 20, the longest wait of the site's other "
      "ranks for the first one");
  EXPECT_EQ(refusal(remote({"outer.timeout_s=19", "comm.timeout=20"})), "");
  EXPECT_NE(refusal(remote({"outer.timeout_s=0.5"})), "");
  EXPECT_NE(refusal(remote({"outer.site=-1"})), "");
  EXPECT_EQ(read(joined(remote(), {"outer.sites=1"})).notes.size(), 3u);
}

TEST(OuterConfig, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refusal(with({"outer.momentum=0", "outer.nesterov=true"})),
            "outer.nesterov: needs outer.momentum above 0");
  EXPECT_EQ(refusal(with({"bf16.enabled=true", "optimizer.master_weights=false"})),
            "outer.sites: above 1 needs master weights, whose updates the sites exchange: set "
            "optimizer.master_weights to true");
  EXPECT_EQ(refusal(with({"bf16.enabled=true", "zero_optimization.offload_optimizer.device=nvme",
                          "zero_optimization.offload_optimizer.nvme_path=/tmp"})),
            "outer.sites: above 1 needs the master weights in memory: set "
            "zero_optimization.offload_optimizer.device to none or cpu");
  EXPECT_EQ(refusal(with({"outer.compression.bits=4"})),
            "outer.compression.bits: needs outer.compression.method: quantize, top_k, random_k or "
            "powersgd");
  EXPECT_EQ(refusal(with({"outer.compression.method=quantize", "outer.compression.bits=3"})),
            "outer.compression.bits: is 3, expected 8, 4 or 1");
  EXPECT_EQ(
      refusal(with({"outer.fragments=3"})),
      "outer.fragments: 3 is above 2, the smaller of the model's 2 layers and outer.period 100");
  EXPECT_EQ(refusal(with({"outer.period=5", "outer.overlap_steps=5"})),
            "outer.overlap_steps: 5 is not below outer.period 5");
  EXPECT_EQ(refusal(with({"outer.mixing=0.5"})), "outer.mixing: needs outer.overlap_steps above 0");
  EXPECT_NE(refusal(with({"outer.algorithm=sgd"})), "");
  EXPECT_NE(refusal(with({"outer.period=0"})), "");
  EXPECT_NE(refusal(with({"outer.lr=0"})), "");
  EXPECT_NE(refusal(with({"outer.momentum=1"})), "");
}

}  // namespace
}  // namespace trireme::test_outer
