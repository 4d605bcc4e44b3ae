// config.json files of published models, copied here as published. They contain keys of other
// programs, of custom code in the directory and of converters; all must be accepted.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/formats/load_config.h"
#include "transformer/formats/stop_token_ids.h"
#include "transformer/model/flops.h"
#include "transformer/model/model.h"

namespace trireme::test_published {
namespace {

namespace fs = std::filesystem;

struct Published {
  const char* name;
  int64_t parameters;  // without selection biases
  int64_t longest;
  std::vector<int32_t> ends;
};

const Published kPublished[] = {
    {"llama-7b", 6738415616, 2048, {2}},
    {"llama-3.1-8b-instruct", 8030261248, 131072, {128001, 128008, 128009}},
    {"llama-3.2-1b", 1235814400, 131072, {128001}},
    {"llama-3.2-1b-copied", 1235814400, 131072, {128001}},
    {"tinyllama-1.1b", 1100048384, 2048, {2}},
    {"smollm2-135m", 134515008, 8192, {2}},
    {"qwen2.5-0.5b", 494032768, 32768, {151645}},
    {"qwen2.5-7b", 7615616512, 131072, {151643}},
    {"qwen3-0.6b", 596049920, 40960, {151645}},
    {"mistral-nemo", 12247782400, 131072, {2}},
    {"gemma-3-1b", 999885952, 32768, {1, 106}},
    {"gemma-3-4b", 3880263168, 131072, {1, 106}},
    {"mixtral-8x7b", 46702792704, 32768, {2}},
    {"qwen3-30b-a3b", 30532122624, 40960, {151645}},
    {"deepseek-v2-lite", 15706484224, 163840, {100001}},
    {"deepseek-v3", 671026404352, 163840, {1}},
    {"kimi-k2", 1026408209408, 131072, {163585}},
    {"smollm3-3b", 3075098624, 65536, {128012}},
    {"granite-3.3-8b", 8170864640, 131072, {0}},
    {"olmo-2-7b", 7298617344, 4096, {100257}},
    {"olmo-3.1-32b", 32233522176, 65536, {100257}},
    {"phi-3.5-mini", 3821079552, 131072, {32000}},
    {"phi-4-mini", 3836021760, 131072, {199999}},
    {"ministral-3-3b", 3429006336, 262144, {}},
    {"ernie-4.5-0.3b", 360748032, 131072, {2}},
    {"exaone-4.0-32b", 32003216384, 131072, {361}},
    {"hunyuan-7b", 7504568320, 262144, {127960}},
    {"seed-oss-36b", 36151104512, 524288, {2}},
    {"glm-4-9b", 9399951360, 131072, {151329, 151336, 151338}},
    {"glm-4.5", 352797814784, 131072, {151329, 151336, 151338}},
    {"minimax-m2.5", 228689748992, 196608, {}},
    {"gpt-oss-20b", 20914757184, 131072, {200002}},
    {"gemma-2-9b", 9241705984, 8192, {1}},
    {"llama-4-scout", 107769861120, 10485760, {200001, 200007, 200008}},
    {"distilgpt2", 81912576, 1024, {50256}},
};

std::string file_of(const std::string& name) {
  return concat(test::source_folder(), "/tests/transformer/families/published/", name, ".json");
}

class PublishedTest : public testing::TestWithParam<Published> {};

TEST_P(PublishedTest, IsReadAsItIs) {
  const Published& expected = GetParam();
  const test::ScratchDirectory dir;
  fs::copy(file_of(expected.name), dir / "config.json");
  std::vector<std::string> notes;
  const ModelConfig config = load_model_config(dir.path(), notes);
  EXPECT_EQ(parameter_count(config), expected.parameters);
  // A token's products are with what it visits, except the rows of the tables that it looks up.
  const int64_t tables = (config.tie_word_embeddings ? 0 : config.vocab_size * config.hidden_size) +
                         (config.learned_positions ? config.max_positions * config.hidden_size : 0);
  EXPECT_EQ(2.0 * static_cast<double>(count_parameters(config).active - tables),
            inference_cost(config, 2, 2).token_flops);
  EXPECT_EQ(longest_sequence(config), expected.longest);
  EXPECT_EQ(stop_token_ids(dir.path(), config.vocab_size), expected.ends);
  // Our own form is strict, and gives the same configuration.
  ConfigReport report;
  EXPECT_EQ(read_model_config(model_config_to_json(config), "", report), config);
  report.throw_if_errors(expected.name);
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedTest, testing::ValuesIn(kPublished), [](const auto& one) {
  std::string name = one.param.name;
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
});

TEST(Published, AllAreInTheTable) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(file_of("x")).parent_path()))
    files += entry.path().extension() == ".json" ? 1 : 0;
  EXPECT_EQ(files, std::size(kPublished));
}

// A thousand bytes that describe a model beyond any memory are refused before anything is
// allocated.
TEST(Published, HostileSizesAreRefused) {
  const auto problem = [](const char* name, const std::string& changes) {
    Json json = parse_json_file(file_of(name));
    json.erase("quantization_config");
    json.merge_patch(parse_json(changes, "changes"));
    ConfigReport report;
    read_model_config(json, "model", report);
    return report.ok() ? "" : report.errors().front();
  };
  EXPECT_EQ(problem("mixtral-8x7b", R"({"num_hidden_layers": 65536, "num_local_experts": 65536})"),
            "model: 65536 layers of 65536 experts are 4294967296, at most 262144 are supported");
  const std::string large = "model: the sizes make a model of ";
  EXPECT_EQ(problem("llama-7b", R"({"hidden_size": 1048576, "head_dim": 1048576,
                                    "num_attention_heads": 1048576, "num_hidden_layers": 65536})")
                .substr(0, large.size()),
            large);
  EXPECT_EQ(problem("llama-7b", R"({"hidden_size": 1048576, "vocab_size": 2147483647})")
                .substr(0, large.size()),
            large);
  EXPECT_EQ(problem("deepseek-v3", "{}"), "");
  EXPECT_EQ(problem("kimi-k2", "{}"), "");
}

}  // namespace
}  // namespace trireme::test_published
