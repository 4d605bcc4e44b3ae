// Files shipped with the schema: configurations, the reference page, the JSON Schema.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/support/source_folder.h"
#include "training/config/run_config.h"
#include "transformer/families/family.h"
#include "transformer/formats/load_config.h"
#include "transformer/formats/model_keys.h"

namespace trireme::test_run_schema {
namespace {

// Seeds of the configuration fuzzer: numbers beyond all sizes, wrong signs, types and lengths.
TEST(HostileConfigs, AreRefusedForEachOfTheirReasons) {
  int hostile = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           concat(test::source_folder(), "/tests/fuzz/seeds/config"))) {
    const std::string path = entry.path().string();
    if (!entry.path().filename().string().starts_with("hostile_")) {
      EXPECT_NO_THROW(read_run_config(parse_json_file(path), 2)) << path;
      continue;
    }
    ++hostile;
    try {
      read_run_config(parse_json_file(path), 2);
      ADD_FAILURE() << path;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find("model."), std::string::npos)
          << path << ": " << e.what();
    }
  }
  EXPECT_EQ(hostile, 4);
}

TEST(ShippedConfigs, AllLoad) {
  int runs = 0;
  const std::string folder = concat(test::source_folder(), "/configs");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const RunConfig config = load_run_config(entry.path().string(), {}, 1);
    EXPECT_TRUE(config.notes.empty()) << entry.path();
    ++runs;
  }
  EXPECT_GE(runs, 3);
  int models = 0;
  std::vector<std::string> notes;
  for (const auto& entry : std::filesystem::directory_iterator(concat(folder, "/models"))) {
    EXPECT_GT(load_model_config(entry.path().string(), notes).vocab_size, 0) << entry.path();
    ++models;
  }
  EXPECT_GE(models, 5);
  EXPECT_TRUE(notes.empty());
}

TEST(ConfigReference, ThePageIsUpToDate) {
  std::ifstream file(concat(test::source_folder(), "/docs/reference/config-reference.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(page == config_reference())
      << "run: build/release/trireme config reference > docs/reference/config-reference.md";
}

TEST(ModelKeys, ThePageIsUpToDate) {
  std::ifstream file(concat(test::source_folder(), "/docs/reference/model-keys.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(page == model_keys_page())
      << "run: build/release/trireme config model-keys > docs/reference/model-keys.md";
}

TEST(ModelFamilies, TheTableIsUpToDate) {
  std::ifstream file(concat(test::source_folder(), "/docs/reference/models.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string end = "<!-- End of the table. -->\n";
  const size_t begin = page.find("| `model_type` |"), after = page.find(end);
  ASSERT_TRUE(begin != std::string::npos && after != std::string::npos);
  EXPECT_EQ(page.substr(begin, after - begin), family_table())
      << "replace the table in docs/reference/models.md: build/release/trireme config models";
  for (const Family* family : families())
    EXPECT_TRUE(*family->models != '\0' && *family->special != '\0') << family->model_type;
}

TEST(ConfigSchema, DescribesTheModelToo) {
  const Json schema = run_config_json_schema();
  EXPECT_EQ(schema["required"].dump(), R"(["model","output_dir"])");
  const Json& forms = schema["properties"]["model"]["anyOf"];
  ASSERT_EQ(forms.size(), 1 + families().size());  // a path, or an object of one family
  EXPECT_EQ(forms[0]["type"], "string");
  EXPECT_TRUE(forms[1]["properties"].contains("n_embd"));
  EXPECT_TRUE(forms[2]["properties"].contains("hidden_size"));
}

}  // namespace
}  // namespace trireme::test_run_schema
