// Metrics of a load test, compared with hand-computed values.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
#include "serving/bench/latency.h"

namespace trireme::test_latency {
namespace {

TEST(Distribution, LiesBetweenTheNearestValues) {
  const Distribution d = distribution_of({40, 10, 20, 30});  // equal to numpy.percentile
  EXPECT_EQ(d.count, 4U);
  EXPECT_DOUBLE_EQ(d.mean, 25);
  EXPECT_DOUBLE_EQ(d.deviation, std::sqrt(125.0));
  EXPECT_DOUBLE_EQ(d.p50, 25);
  EXPECT_DOUBLE_EQ(d.p90, 37);
  EXPECT_DOUBLE_EQ(d.p99, 39.7);
}

TEST(Distribution, OfOneValueAndOfNone) {
  const Distribution one = distribution_of({3});
  EXPECT_EQ(one.p50, 3);
  EXPECT_EQ(one.p99, 3);
  EXPECT_EQ(one.deviation, 0);
  const Distribution none = distribution_of({});
  EXPECT_EQ(none.count, 0U);
  EXPECT_EQ(none.mean, 0);
  EXPECT_EQ(none.p99, 0);
}

std::vector<RequestOutcome> outcomes() {
  return {// 5 tokens in 4 events: TPOT (1.2 - 0.4) / 4 = 0.2
          {.sent = 0,
           .ttft = 0.4,
           .e2el = 1.2,
           .itl = {0.1, 0.3, 0.4},
           .input_tokens = 7,
           .output_tokens = 5},
          // One token: no TPOT, no gap.
          {.sent = 1, .ttft = 0.8, .e2el = 0.8, .input_tokens = 3, .output_tokens = 1},
          {.error = "status 503: full",
           .sent = 1,
           .ttft = 9,
           .e2el = 9,
           .input_tokens = 99,
           .output_tokens = 99},
          // TPOT (2 - 1) / 2 = 0.5
          {.sent = 2.5,
           .ttft = 1,
           .e2el = 2,
           .itl = {0.5, 0.5},
           .input_tokens = 10,
           .output_tokens = 3}};
}

TEST(LoadReport, CountsWhatSucceeded) {
  const LoadReport r = report_of(outcomes(), 5, {});
  EXPECT_EQ(r.completed, 3);
  EXPECT_EQ(r.failed, 1);
  EXPECT_EQ(r.input_tokens, 20);
  EXPECT_EQ(r.output_tokens, 9);
  EXPECT_DOUBLE_EQ(r.request_rate(), 0.6);
  EXPECT_DOUBLE_EQ(r.output_rate(), 1.8);
  EXPECT_DOUBLE_EQ(r.token_rate(), 5.8);
  EXPECT_EQ(r.max_concurrent, 2);  // from 1.0 to 1.2
  EXPECT_DOUBLE_EQ(r.ttft.mean, 2.2 / 3);
  EXPECT_DOUBLE_EQ(r.ttft.p50, 0.8);
  EXPECT_EQ(r.tpot.count, 2U);
  EXPECT_DOUBLE_EQ(r.tpot.mean, 0.35);
  EXPECT_EQ(r.itl.count, 5U);
  EXPECT_DOUBLE_EQ(r.itl.mean, 0.36);
  EXPECT_DOUBLE_EQ(r.itl.p50, 0.4);
  EXPECT_DOUBLE_EQ(r.e2el.mean, 4.0 / 3);
}

TEST(LoadReport, RequestsThatFollowEachOtherAreNotConcurrent) {
  const LoadReport r = report_of({{.sent = 0, .e2el = 1}, {.sent = 1, .e2el = 1}}, 2, {});
  EXPECT_EQ(r.max_concurrent, 1);
}

TEST(LoadReport, GoodputIsWhatKeepsToEveryBound) {
  EXPECT_EQ(report_of(outcomes(), 5, parse_service_level({"ttft:900"})).good, 2);
  EXPECT_EQ(report_of(outcomes(), 5, parse_service_level({"ttft:1000"})).good, 3);
  EXPECT_EQ(report_of(outcomes(), 5, parse_service_level({"tpot:200.1"})).good, 2);
  EXPECT_EQ(report_of(outcomes(), 5, parse_service_level({"tpot:199.9"})).good, 1);
  EXPECT_EQ(report_of(outcomes(), 5, parse_service_level({"e2el:1000", "ttft:500"})).good, 0);
  EXPECT_DOUBLE_EQ(report_of(outcomes(), 5, parse_service_level({"e2el:1300"})).good_rate(), 0.4);
}

TEST(ServiceLevel, RefusesWhatIsNoBound) {
  for (const char* bound :
       {"ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:1ms", "itl:5", ":5", "", "ttft:inf"})
    EXPECT_THROW(parse_service_level({bound}), InputError) << bound;
  EXPECT_THROW(parse_service_level({"ttft:1", "ttft:2"}), InputError);
  EXPECT_FALSE(parse_service_level({}).any());
  EXPECT_TRUE(parse_service_level({"tpot:0"}).any());
}

}  // namespace
}  // namespace trireme::test_latency
