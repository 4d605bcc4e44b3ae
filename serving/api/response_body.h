// Body of a non-streamed response: one JSON object.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "serving/api/generation_choice.h"
#include "serving/api/usage.h"

namespace trireme {

// choices: all that were computed, form.n per prompt, in order. All must have ended. With
// form.returned only the best of them are written.
std::string response_body(const ResponseContext& response,
                          std::span<const std::unique_ptr<GenerationChoice>> choices,
                          const Usage& usage);

}  // namespace trireme
