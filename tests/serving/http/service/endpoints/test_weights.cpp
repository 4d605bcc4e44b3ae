// POST /admin/weights on a server whose weights are words.
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "serving/api/endpoints/lora_adapters.h"
#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_weights {
namespace {

using Json = nlohmann::json;

class FakeWeights final : public ModelWeights {
 public:
  Checkpoint served() const override { return {"run/step-1", 1}; }
  Checkpoint stage(const std::string& path) override {
    std::unique_lock lock(mutex);
    ++stages;
    changed.wait(lock, [&] { return !held; });
    if (path == "other") throw InputError("other is for another model:\n  hidden_size: 8");
    return {path + "/step-7", 7};
  }
  void stage_adapter(int32_t slot, const std::string& path) override {
    if (path == "other") throw InputError("other has rank 99");
    record(slot, path);
  }
  void forget_adapter(int32_t slot) override { record(slot, ""); }
  void record(int32_t slot, const std::string& path) {
    const std::lock_guard lock(mutex);
    adapters.emplace_back(slot, path);
  }
  void use(size_t) override {
    if (lost) throw Error("rank 3 is lost");
    if (on_use) on_use();
    ++used;
  }
  void drop() override { ++dropped; }
  void hold(bool whether) {
    const std::lock_guard lock(mutex);
    held = whether;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  std::vector<std::pair<int32_t, std::string>> adapters;
  std::atomic<bool> lost = false;
  std::function<void()> on_use;
  std::atomic<int> stages = 0, used = 0, dropped = 0;
};

class WeightsRoute : public testing::Test {
 protected:
  static test::RecordedServerOptions options(ModelWeights& weights) {
    test::RecordedServerOptions options;
    options.weights = &weights;
    options.adapters = 1;
    options.http.keys = ApiKeys({"user"}, {"admin"});
    return options;
  }
  test::Response ask(const std::string& method, const std::string& path, const std::string& body,
                     const std::string& key = "admin") {
    return server.ask(concat(
        method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ", key,
        "\r\nConnection: close\r\n", body.empty() ? "" : "Content-Type: application/json\r\n",
        "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  test::Response replace(const std::string& body, const std::string& key = "admin") {
    return ask("POST", "/admin/weights", body, key);
  }
  // Changes the weights while a request runs. Returns the step before which they were changed.
  int64_t replaced_before(const char* path, const std::string& body) {
    int64_t step = -1;
    weights.on_use = [&] { step = server.gate.passed(); };
    server.gate.hold_after(1);
    auto response = std::async(std::launch::async, [&] { return ask("POST", path, body); });
    EXPECT_TRUE(test::eventually([&] { return server.gate.is_shut() && server.in_engine() > 0; }));
    auto change = std::async(std::launch::async, [&] { return replace(R"({"mode":"wait"})"); });
    EXPECT_TRUE(test::eventually([&] {
      return Json::parse(ask("GET", "/admin/weights", "").body)["replacing"] == "waiting";
    }));
    server.gate.release();
    EXPECT_EQ(response.get().status, 200);
    EXPECT_EQ(change.get().status, 200);
    weights.on_use = nullptr;
    return step;
  }
  Json complete() {
    return Json::parse(
        ask("POST", "/v1/completions", R"({"model":"m","prompt":"ab","max_tokens":2})").body);
  }
  double metric(const std::string& line) {
    const std::string text = ask("GET", "/metrics", "").body;
    const size_t at = text.find("\n" + line);
    return at == std::string::npos ? -1 : std::stod(text.substr(text.find("} ", at) + 2));
  }

  FakeWeights weights;
  test::RecordedServer server{options(weights)};
};

TEST_F(WeightsRoute, IsAnAdminsAlone) {
  EXPECT_EQ(replace("{}", "user").status, 403);
  EXPECT_EQ(ask("GET", "/admin/weights", "", "user").status, 403);
  EXPECT_EQ(replace("{}", "nobody").status, 401);
  EXPECT_EQ(weights.stages, 0);
}

TEST_F(WeightsRoute, ReplacesThem) {
  EXPECT_EQ(complete()["system_fingerprint"], "f");
  EXPECT_EQ(metric("trireme:weights_version"), 1);
  for (const char* mode : {"wait", "abort", "keep"}) {
    const int before = weights.used;
    const test::Response response = replace(Json{{"model", "b"}, {"mode", mode}}.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    const Json reported = Json::parse(response.body);
    EXPECT_EQ(reported["model"], "b/step-7");
    EXPECT_EQ(reported["step"], 7);
    EXPECT_EQ(reported["version"], before + 2);
    EXPECT_EQ(weights.used, before + 1);
    EXPECT_EQ(weights.dropped, weights.used);
  }
  // Repeated without a path: uses the last path.
  EXPECT_EQ(Json::parse(replace("{}").body)["model"], "b/step-7");
  EXPECT_EQ(Json::parse(ask("GET", "/admin/weights", "").body)["version"], 5);
  EXPECT_EQ(complete()["system_fingerprint"], "trireme-1.0-step-7-weights-5");
  EXPECT_EQ(Json::parse(ask("GET", "/v1/models/m", "").body)["root"], "b");
  EXPECT_EQ(metric("trireme:weights_version"), 5);
  EXPECT_EQ(metric("trireme:weight_reloads_total{model_name=\"m\",outcome=\"done\"}"), 4);
}

// The rounds of a beam search, and all sequences and prompts of a request, use one weight version.
TEST_F(WeightsRoute, WaitsForAllOfARequest) {
  int64_t step = replaced_before(
      "/v1/completions",
      R"({"model":"m","prompt":"ab","max_tokens":5,"use_beam_search":true,"n":2,"ignore_eos":true})");
  const int64_t searched = server.gate.passed();
  EXPECT_EQ(step, searched);
  EXPECT_GE(searched, 5);
  Json texts = Json::array();
  for (int i = 0; i < 20; ++i) texts.push_back(std::string(20, static_cast<char>('a' + i)));
  step = replaced_before("/v1/embeddings", Json{{"model", "m"}, {"input", texts}}.dump());
  EXPECT_EQ(step, server.gate.passed());
  EXPECT_GE(step, searched + 3);
}

TEST_F(WeightsRoute, RefusesOthersAndGoesOn) {
  const test::Response response = replace(R"({"model":"other"})");
  EXPECT_EQ(response.status, 400);
  const Json error = Json::parse(response.body)["error"];
  EXPECT_EQ(error["param"], "model");
  EXPECT_NE(error["message"].get<std::string>().find("hidden_size"), std::string::npos);
  EXPECT_EQ(replace(R"({"mode":"now"})").status, 400);
  EXPECT_EQ(replace(R"({"model":7})").status, 400);
  EXPECT_EQ(replace("").status, 400);
  EXPECT_EQ(weights.used, 0);
  EXPECT_EQ(complete()["system_fingerprint"], "f");
  EXPECT_EQ(metric("trireme:weight_reloads_total{model_name=\"m\",outcome=\"refused\"}"), 1);
}

TEST_F(WeightsRoute, DoesOneAtATime) {
  weights.hold(true);
  auto first = std::async(std::launch::async, [&] { return replace("{}"); });
  EXPECT_TRUE(test::eventually([&] { return weights.stages == 1; }));
  const test::Response second = replace("{}");
  EXPECT_EQ(second.status, 409);
  EXPECT_EQ(Json::parse(second.body)["error"]["code"], "reload_in_progress");
  EXPECT_EQ(Json::parse(ask("GET", "/admin/weights", "").body)["replacing"], "loading");
  // The client that started it may disconnect.
  weights.hold(false);
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(replace("{}").status, 200);
}

TEST_F(WeightsRoute, SaysWhereTheyAreLost) {
  weights.lost = true;
  const test::Response response = replace("{}");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(Json::parse(response.body)["error"]["code"], "engine_failure");
  EXPECT_EQ(weights.dropped, 1);
  EXPECT_EQ(ask("GET", "/health/ready", "").status, 503);
}

TEST_F(WeightsRoute, LetsAdaptersComeAndGo) {
  const auto load = [&](const char* name, const char* path) {
    return ask("POST", "/v1/load_lora_adapter",
               Json{{"lora_name", name}, {"lora_path", path}}.dump());
  };
  const auto unload = [&](const char* name) {
    return ask("POST", "/v1/unload_lora_adapter", Json{{"lora_name", name}}.dump());
  };
  const auto write = [&](const char* model) {
    return ask(
        "POST", "/v1/completions",
        Json{{"model", model}, {"prompt", "abcdefghijklmnopqrst"}, {"max_tokens", 2}}.dump());
  };
  const auto cached = [&](const test::Response& response) {
    return Json::parse(response.body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(ask("POST", "/v1/load_lora_adapter", "{}", "user").status, 403);
  EXPECT_EQ(cached(write("m")), 0);
  EXPECT_EQ(write("one").status, 404);
  EXPECT_EQ(unload("one").status, 404);
  EXPECT_EQ(unload("m").status, 404);
  const test::Response refused = load("one", "other");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(Json::parse(refused.body)["error"]["param"], "lora_path");
  for (const char* name : {"", "a,b", "a\nb", "a\x7f"})
    EXPECT_EQ(load(name, "a").status, 400) << name;
  EXPECT_EQ(load("one", "a\nb").status, 400);
  EXPECT_EQ(load("one", std::string(4097, 'a').c_str()).status, 400);
  EXPECT_EQ(load("m", "a").status, 400);
  const test::Response loaded = load("one", "a");
  EXPECT_EQ(loaded.status, 200);
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'one' added successfully.");
  EXPECT_EQ(loaded.headers.at("Content-Type"), kLoadAdapterEndpoint.content_type);
  EXPECT_EQ(load("one", "a").status, 400);
  EXPECT_EQ(load("two", "b").status, 503);  // there is one slot
  EXPECT_EQ(Json::parse(ask("GET", "/v1/models/one", "").body)["parent"], "m");
  EXPECT_EQ(cached(write("one")), 0);
  EXPECT_EQ(cached(write("one")), 16);
  EXPECT_EQ(unload("one").status, 200);
  EXPECT_EQ(write("one").status, 404);
  // Its slot is used by the next adapter, which finds no cached blocks.
  EXPECT_TRUE(test::eventually([&] { return load("two", "b").status == 200; }));
  EXPECT_EQ(cached(write("two")), 0);
  // The base model's blocks are unaffected.
  EXPECT_EQ(cached(write("m")), 16);
  const std::vector<std::pair<int32_t, std::string>> want{{0, "a"}, {0, ""}, {0, "b"}};
  EXPECT_EQ(weights.adapters, want);
}

// A running request keeps its adapter's slot.
TEST_F(WeightsRoute, GivesNoSlotAwayThatIsComputedWith) {
  const auto load = [&](const char* name) {
    return ask("POST", "/v1/load_lora_adapter",
               Json{{"lora_name", name}, {"lora_path", "a"}}.dump());
  };
  ASSERT_EQ(load("one").status, 200);
  server.gate.hold_after(1);
  auto text = std::async(std::launch::async, [&] {
    return ask("POST", "/v1/completions", R"({"model":"one","prompt":"ab","max_tokens":2})");
  });
  EXPECT_TRUE(test::eventually([&] {
    return ask("GET", "/metrics", "").body.find("running_lora_adapters=\"one\"") !=
           std::string::npos;
  }));
  EXPECT_EQ(ask("POST", "/v1/unload_lora_adapter", R"({"lora_name":"one"})").status, 200);
  EXPECT_EQ(load("two").status, 503);
  server.gate.release();
  EXPECT_EQ(text.get().status, 200);
  EXPECT_TRUE(test::eventually([&] { return load("two").status == 200; }));
}

// So does a beam search, of which each round has other sequences.
TEST_F(WeightsRoute, GivesNoSlotAwayThatBeamsAreSearchedWith) {
  const auto load = [&](const char* name) {
    return ask("POST", "/v1/load_lora_adapter",
               Json{{"lora_name", name}, {"lora_path", "a"}}.dump());
  };
  ASSERT_EQ(load("one").status, 200);
  server.gate.hold_after(2);
  auto text = std::async(std::launch::async, [&] {
    return ask("POST", "/v1/completions",
               R"({"model":"one","prompt":"ab","max_tokens":5,"use_beam_search":true,"n":2})");
  });
  EXPECT_TRUE(test::eventually([&] { return server.in_engine() > 0; }));
  EXPECT_EQ(ask("POST", "/v1/unload_lora_adapter", R"({"lora_name":"one"})").status, 200);
  EXPECT_EQ(load("two").status, 503);
  server.gate.release();
  EXPECT_EQ(text.get().status, 200);
  EXPECT_TRUE(test::eventually([&] { return load("two").status == 200; }));
}

TEST_F(WeightsRoute, LoadsOneAdapterAtATime) {
  weights.hold(true);
  auto first = std::async(std::launch::async, [&] { return replace("{}"); });
  EXPECT_TRUE(test::eventually([&] { return weights.stages == 1; }));
  const std::string body = R"({"lora_name":"one","lora_path":"a"})";
  EXPECT_EQ(ask("POST", "/v1/load_lora_adapter", body).status, 409);
  weights.hold(false);
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(ask("POST", "/v1/load_lora_adapter", body).status, 200);
}

// Some ranks may have the adapter and others not: it is not used any more.
TEST_F(WeightsRoute, ServesNoAdapterThatIsLostOnTheWay) {
  weights.lost = true;
  EXPECT_EQ(ask("POST", "/v1/load_lora_adapter", R"({"lora_name":"one","lora_path":"a"})").status,
            503);
  EXPECT_EQ(weights.dropped, 1);
  EXPECT_EQ(ask("GET", "/v1/models/one", "").status, 404);
  EXPECT_EQ(ask("GET", "/health/ready", "").status, 503);
}

TEST(WeightsRouteOf, AServerWithoutRoomHasNoAdaptersToLoad) {
  FakeWeights weights;
  test::RecordedServerOptions options;
  options.weights = &weights;
  test::RecordedServer server(options);
  EXPECT_EQ(server
                .ask("POST /v1/load_lora_adapter HTTP/1.1\r\nHost: localhost\r\nConnection: "
                     "close\r\nContent-Length: 0\r\n\r\n")
                .status,
            404);
}

TEST(WeightsRouteOf, AServerWithoutThemIsNotThere) {
  test::RecordedServer server;
  EXPECT_EQ(server
                .ask("POST /admin/weights HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
                .status,
            404);
}

}  // namespace
}  // namespace trireme::test_weights
