// Every key of adapter_config.json is read, known to have no effect, or refused by name
// (peft_keys.h).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "tests/transformer/formats/peft/peft_case.h"
#include "transformer/formats/peft/peft_keys.h"

namespace trireme::test::test_peft_keys {
namespace {

using Json = nlohmann::ordered_json;

// "" or the message about the golden adapter with this value.
std::string said(const std::string& key, const Json& value) {
  const ScratchDirectory dir;
  std::filesystem::copy(peft_golden() + "adapter", dir / "adapter");
  auto config = read_json_file<Json>(dir / "adapter/adapter_config.json");
  config[key] = value;
  std::ofstream(dir / "adapter/adapter_config.json") << config.dump();
  try {
    const PeftAdapter adapter(dir / "adapter");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

void expect_refused(const std::string& key, const Json& value) {
  const std::string what = said(key, value);
  EXPECT_NE(what.find(concat("adapter_config.json: ", key, " ", value.dump())), std::string::npos)
      << key << ": " << what;
  EXPECT_NE(what.find("merge_and_unload()"), std::string::npos) << what;
}

// PEFT subtracts the initial s B A from the base, or quantizes it.
TEST(PeftKeys, InitialWeightsThatChangeTheBaseAreRefused) {
  for (const char* init :
       {"pissa", "pissa_niter_4", "olora", "OLoRA", "corda", "loftq", "lora_ga", "another"}) {
    expect_refused("init_lora_weights", init);
    EXPECT_NE(said("init_lora_weights", init).find("path_initial_model_for_weight_conversion"),
              std::string::npos);
  }
  for (const Json& init : {Json(true), Json(false), Json("gaussian"), Json("eva"),
                           Json("orthogonal"), Json("mica"), Json()})
    EXPECT_EQ(said("init_lora_weights", init), "") << init;
}

TEST(PeftKeys, OtherMathematicsIsRefused) {
  expect_refused("alora_invocation_tokens", {5, 6});
  expect_refused("arrow_config", {{"top_k", 3}});
  expect_refused("use_bdlora", {{"nblocks", 2}});
  expect_refused("kasa_config", {{"beta", 1e-4}});
  expect_refused("monteclora_config", {{"num_samples", 8}});
  expect_refused("use_qalora", true);
  expect_refused("lora_bias", true);
  expect_refused("layer_replication", {{0, 2}, {1, 2}});
  expect_refused("target_parameters", {"mlp.experts.gate_up_proj"});
  expect_refused("trainable_token_indices", {3});
  expect_refused("task_type", "SEQ_CLS");
}

TEST(PeftKeys, UnknownOnesAreRefusedUnlessNeutral) {
  expect_refused("use_new_method", true);
  expect_refused("new_scale", 2.0);
  EXPECT_NE(said("new_scale", 2.0).find("unknown key"), std::string::npos);
  for (const Json& value : {Json(), Json(false), Json::array(), Json::object(), Json("")})
    EXPECT_EQ(said("use_new_method", value), "") << value;
}

TEST(PeftKeys, WhatHasNoEffectIsAccepted) {
  EXPECT_EQ(said("velora_config", {{"num_groups", 64}}), "");
  EXPECT_EQ(said("eva_config", {{"rho", 2.0}}), "");
  EXPECT_EQ(said("lora_dropout", 0.5), "");
  EXPECT_EQ(said("megatron_core", "megatron.core"), "");
}

// PEFT's default file contains every field of its LoraConfig; all are in the table.
TEST(PeftKeys, AllThatPeftWritesAreKnown) {
  const auto config = read_json_file<Json>(peft_golden() + "adapter/adapter_config.json");
  for (const auto& [name, value] : config.items())
    EXPECT_NE(std::ranges::find(peft_keys(), name, &PeftKey::name), peft_keys().end()) << name;
}

TEST(PeftKeys, ThePageIsUpToDate) {
  std::ifstream file(source_folder() + "/docs/reference/adapter-keys.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(page == adapter_reference())
      << "run: build/release/trireme config adapter-keys > docs/reference/adapter-keys.md";
}

}  // namespace
}  // namespace trireme::test::test_peft_keys
