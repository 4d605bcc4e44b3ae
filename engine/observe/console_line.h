// Console and train.log line of a training step: Megatron-LM's fields, wording and widths, which
// existing parsers expect, with tokens/s, MFU and outer rounds appended.
#pragma once

#include <string>

#include "engine/observe/step_metrics.h"

namespace trireme {

std::string local_time_text();  // "2026-01-31 12:00:00.123456"

// [2026-01-31 12:00:00.123456] iteration        1/     100 | consumed samples: ... | ...
// Without "lm loss" and "grad norm" if the step was skipped, and without MFU or round if absent.
std::string console_line(const StepMetrics& metrics);
// validation loss at iteration N | lm loss value: 1.234567E+00 | lm loss PPL: 3.436885E+00 |
// With the name of a set: validation loss at iteration N on NAME set | lm loss value: ...
// part: "160 of 549" if not all samples were used; appended as: samples: 160 of 549 |
std::string validation_line(int64_t step, double loss, const std::string& set = "",
                            const std::string& part = "");

}  // namespace trireme
