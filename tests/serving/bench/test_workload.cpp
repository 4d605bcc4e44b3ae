#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "serving/bench/workload.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_workload {
namespace {

using nlohmann::json;

std::vector<double> gaps(const std::vector<double>& times) {
  std::vector<double> out;
  double last = 0;
  for (const double time : times) {
    out.push_back(time - last);
    last = time;
  }
  return out;
}

// Variance over squared mean: 1 / shape for gamma.
double relative_variance(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  const auto n = static_cast<double>(values.size());
  return squares / n / (sum / n * (sum / n)) - 1;
}

TEST(Arrivals, HaveTheirRateAndTheirBurstiness) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const std::vector<double> times = arrival_times(20'000, 50, burstiness, 3);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_GT(times.front(), 0);
    EXPECT_NEAR(times.back(), 400, 1e-6);
    // Five standard errors: the statistic's own variance is below 40 / n for these shapes.
    EXPECT_NEAR(relative_variance(gaps(times)) * burstiness, 1, 5 * std::sqrt(40 / 20'000.0));
  }
  // In a Poisson process a fraction of 1/e of the gaps exceeds the mean.
  const std::vector<double> poisson = gaps(arrival_times(20'000, 1, 1, 9));
  const auto longer = std::count_if(poisson.begin(), poisson.end(), [](double g) { return g > 1; });
  EXPECT_NEAR(static_cast<double>(longer) / 20'000, std::exp(-1), 5 * std::sqrt(0.25 / 20'000));
}

TEST(Arrivals, AreThoseOfTheSeed) {
  EXPECT_EQ(arrival_times(50, 5, 1, 1), arrival_times(50, 5, 1, 1));
  EXPECT_NE(arrival_times(50, 5, 1, 1), arrival_times(50, 5, 1, 2));
  EXPECT_EQ(arrival_times(3, 0, 1, 1), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(arrival_times(0, 5, 1, 1).empty());
}

std::vector<json> bodies(const WorkloadOptions& options, int64_t count,
                         const std::string& stream = "run") {
  std::vector<json> out;
  for (const LoadRequest& request : make_requests(options, count, stream))
    out.push_back(json::parse(request.body));
  return out;
}

TEST(Workload, RandomPromptsHaveTheirLengths) {
  const WorkloadOptions options{
      .model = "m", .input_tokens = 9, .output_tokens = 4, .prefix_tokens = 3, .vocab_size = 50};
  const std::vector<json> some = bodies(options, 20);
  std::set<json> different, shared;
  for (const json& body : some) {
    EXPECT_EQ(body["model"], "m");
    EXPECT_EQ(body["max_tokens"], 4);
    EXPECT_EQ(body["ignore_eos"], true);
    EXPECT_EQ(body["stream"], true);
    EXPECT_EQ(body["stream_options"]["include_usage"], true);
    ASSERT_EQ(body["prompt"].size(), 9U);
    for (const json& id : body["prompt"]) EXPECT_LT(id.get<int>(), 50);
    different.insert(body["prompt"]);
    shared.insert(json(std::vector<json>(body["prompt"].begin(), body["prompt"].begin() + 3)));
  }
  EXPECT_EQ(different.size(), 20U);
  EXPECT_EQ(shared.size(), 1U);
  EXPECT_EQ(make_requests(options, 1, "run")[0].input_tokens, 9);
  EXPECT_EQ(bodies(options, 20), some);
  EXPECT_NE(bodies(options, 20, "warm-up"), some);
  WorkloadOptions other = options;
  other.seed = 1;
  EXPECT_NE(bodies(other, 20), some);
}

TEST(Workload, RandomChatsHaveWords) {
  const json body = bodies({.chat = true, .model = "m", .input_tokens = 5}, 1)[0];
  const auto text = body["messages"][0]["content"].get<std::string>();
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 4);
  EXPECT_EQ(body["messages"][0]["role"], "user");
  EXPECT_FALSE(body.contains("prompt"));
}

TEST(Workload, ExtraMembersReplaceAndTakeAway) {
  WorkloadOptions options{.model = "m", .input_tokens = 1};
  options.extra_body = R"({"ignore_eos": null, "temperature": 0.5, "top_k": 3})";
  const json body = bodies(options, 1)[0];
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["top_k"], 3);
  for (const char* wrong : {"[1]", "{", R"({"a":1,"a":2})", "3"}) {
    options.extra_body = wrong;
    EXPECT_THROW(make_requests(options, 1, "run"), InputError) << wrong;
  }
}

TEST(Workload, ReadsFiles) {
  const test::ScratchDirectory folder;
  const std::string path = folder / "prompts.jsonl";
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  WorkloadOptions options{.model = "m", .dataset = "custom", .path = path, .output_tokens = 7};
  write("{\"prompt\": \"one\"}\n\n{\"prompt\": \"two\", \"output_tokens\": 3}\n");
  std::vector<json> some = bodies(options, 3);
  EXPECT_EQ(some[0]["prompt"], "one");
  EXPECT_EQ(some[0]["max_tokens"], 7);
  EXPECT_EQ(some[1]["prompt"], "two");
  EXPECT_EQ(some[1]["max_tokens"], 3);
  EXPECT_EQ(some[2], some[0]);
  EXPECT_FALSE(some[0].contains("ignore_eos"));
  options.chat = true;
  EXPECT_EQ(bodies(options, 1)[0]["messages"][0]["content"], "one");
  write("{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}]}");
  EXPECT_EQ(bodies(options, 1)[0]["messages"][0]["role"], "system");
  for (const char* wrong : {"", "\n", "{", "[]", "{}", "{\"prompt\": 3}",
                            "{\"prompt\": \"a\", \"output_tokens\": -1}", "{\"messages\": 3}"}) {
    write(wrong);
    EXPECT_THROW(make_requests(options, 1, "run"), InputError) << wrong;
  }
  options.dataset = "sharegpt";
  options.chat = false;
  write(
      R"([{"conversations": [{"value": "short"}]}, 3, {"conversations": [{"from": "human", "value": "hi"}, {}]}])");
  EXPECT_EQ(bodies(options, 1)[0]["prompt"], "hi");
  write("{}");
  EXPECT_THROW(make_requests(options, 1, "run"), InputError);
  options.path = folder / "nothing";
  EXPECT_THROW(make_requests(options, 1, "run"), InputError);
}

}  // namespace
}  // namespace trireme::test_workload
