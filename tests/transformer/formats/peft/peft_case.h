// Models with PEFT adapters, compared with logits computed by PEFT (tests/golden/peft).
#pragma once

#include <string>
#include <vector>

#include "transformer/formats/peft/peft_adapter.h"

namespace trireme::test {

std::string peft_golden();  // the folder, with a slash

// Logits of the golden tokens, (T, V). lora without an adapter: adapters without effect.
std::vector<double> peft_logits(const ModelSource& source, const PeftAdapter* adapter,
                                LoraConfig lora = {});

void expect_logits(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace trireme::test
