#include <gtest/gtest.h>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "transformer/formats/hf/quantization_keys.h"

namespace trireme::test_quantization_keys {
namespace {

std::string refusal(const std::string& quantization) {
  try {
    read_quantization(parse_json(quantization, "test"), "config.json");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(QuantizationKeys, OtherPackingsAreRefusedByName) {
  const std::string gptq = R"({"quant_method": "gptq", "bits": 4, )";
  EXPECT_EQ(refusal(gptq + R"("checkpoint_format": "marlin"})"),
            "config.json: quantization_config.checkpoint_format: \"marlin\" is not available in "
            "this version; use gptq, gptq_v2");
  for (const char* wrong :
       {R"("format": "marlin"})", R"("is_marlin_format": true})", R"("pack_dtype": "int16"})",
        R"("rotation": "hadamard"})", R"("dynamic": {"+:.*down.*": {"bits": 8}}})",
        R"("tomorrow": 1})", R"("bits": 3})"})
    EXPECT_NE(refusal(gptq + wrong), "") << wrong;
  EXPECT_EQ(refusal(gptq + R"("format": "gptq_v2", "tomorrow": null, "sym": false, "desc_act": true,
                              "dynamic": {"-:^lm_head$": {}}, "meta": {"quantizer": "x"}})"),
            "");
  EXPECT_NE(refusal(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})"), "");
  EXPECT_EQ(refusal(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 64,
                        "zero_point": true, "version": "GEMM", "modules_to_not_convert": null})"),
            "");
  EXPECT_NE(refusal(R"({"quant_method": "fp8", "activation_scheme": "static",
                        "weight_block_size": [128, 128]})"),
            "");
  EXPECT_NE(refusal(R"({"quant_method": "fp8"})"), "");
  EXPECT_NE(refusal(R"({"quant_method": "bitsandbytes"})"), "");
}

}  // namespace
}  // namespace trireme::test_quantization_keys
