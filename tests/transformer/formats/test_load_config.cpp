#include <gtest/gtest.h>

#include <fstream>

#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"
#include "transformer/formats/load_config.h"

namespace trireme::test_load_config {
namespace {

std::string llama(const std::string& more) {
  return concat(R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 32,
                    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4)",
                more, "}");
}

TEST(LoadConfig, AConfigurationByItself) {
  const test::ScratchDirectory dir;
  const std::string file = dir / "config.json";
  std::ofstream(file) << llama(R"(, "use_cache": true, "torch_dtype": "float16", "novel": null,
      "quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 128,
                              "desc_act": false, "sym": true})");
  const ThirdPartyConfig got = read_third_party_config(dir.path());
  EXPECT_EQ(got.file, file);
  EXPECT_EQ(got.config.num_layers, 2);
  EXPECT_EQ(got.ignored, (std::vector<std::string>{"use_cache", "torch_dtype"}));
  EXPECT_EQ(got.notes,
            std::vector<std::string>{"ignoring unknown keys with the value null: \"novel\""});
  EXPECT_EQ(got.quantization, "GPTQ 8 bits");
  std::vector<std::string> notes;
  EXPECT_EQ(load_model_config(dir.path(), notes), got.config);
  EXPECT_EQ(notes, std::vector<std::string>{concat(file, ": ", got.notes.front())});
}

TEST(LoadConfig, ProblemsOfTheWeightsFormatAreReportedWithTheOthers) {
  const test::ScratchDirectory dir;
  const std::string file = dir / "another-name.json";
  std::ofstream(file) << llama(R"(, "alibi": true, "quantization_config": {"quant_method": "x"})");
  try {
    read_third_party_config(file);
    FAIL();
  } catch (const InputError& e) {
    const std::string what = e.what();
    EXPECT_TRUE(what.starts_with(concat(file, ": alibi: true is not available"))) << what;
    EXPECT_NE(what.find(concat("\n", file, ": quantization_config")), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace trireme::test_load_config
