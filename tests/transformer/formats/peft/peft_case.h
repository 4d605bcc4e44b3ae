// Models with adapters of PEFT's against the logits that PEFT computes (tests/golden/peft).
#pragma once

#include <string>
#include <vector>

#include "transformer/formats/peft/peft_adapter.h"

namespace trireme::test {

std::string peft_golden();  // the folder, with a slash

// The logits of the golden tokens, (T, V). lora without an adapter: such as change nothing.
std::vector<double> peft_logits(const ModelSource& source, const PeftAdapter* adapter,
                                LoraConfig lora = {});

void expect_logits(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace trireme::test
