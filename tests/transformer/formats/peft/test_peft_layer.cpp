#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"
#include "transformer/formats/peft/peft_adapter.h"
#include "transformer/formats/peft/peft_layer.h"

namespace trireme::test_peft_layer {
namespace {

ModelConfig published(const char* name) {
  return test::read_valid(test::published_file(name)).config;
}

TEST(PeftLayer, OnlyGpt2sAttentionIsAPartOfALayer) {
  const PeftLayer part =
      peft_layer(published("distilgpt2"), "transformer.h.0.attn.v_proj.lora_B.weight");
  EXPECT_EQ(part.name, "transformer.h.0.attn.c_attn");
  EXPECT_EQ(part.part, 2);
  EXPECT_EQ(part.parts, 3);
  // Files of these models have the layers in fused tensors; their adapters are by layer.
  for (const auto& [model, layer] : {std::pair{"glm-4-9b", "model.layers.0.mlp.up_proj"},
                                     {"phi-4-mini", "model.layers.0.self_attn.v_proj"}}) {
    const PeftLayer whole = peft_layer(published(model), concat(layer, ".lora_B.weight"));
    EXPECT_EQ(whole.name, layer);
    EXPECT_EQ(whole.part, 0);
    EXPECT_EQ(whole.parts, 1);
  }
}

TEST(PeftLayer, LayersThatPeftDoesNotKnowAreNamed) {
  LoraConfig lora;
  lora.rank = 4;
  lora.targets = {"all-linear"};
  EXPECT_NE(lost_in_peft(published("glm-4-9b"), lora).find("gate_up_proj in place of"),
            std::string::npos);
  EXPECT_NE(lost_in_peft(published("phi-4-mini"), lora).find("qkv_proj in place of"),
            std::string::npos);
  EXPECT_EQ(lost_in_peft(published("olmo-2-7b"), lora), "");
}

}  // namespace
}  // namespace trireme::test_peft_layer
