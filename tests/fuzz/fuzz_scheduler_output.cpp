// Arbitrary bytes as the plan of a step: refused, or a plan within its bounds that is written as it
// was read.
#include <cstdint>
#include <cstdlib>

#include "tests/serving/distributed/plan_bounds.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    const trireme::SchedulerOutput plan = trireme::decode_plan(bytes, trireme::test::kWindowBounds);
    const std::vector<std::byte> again = trireme::encode_plan(plan);
    if (!std::equal(bytes.begin(), bytes.end(), again.begin(), again.end())) std::abort();
    for (const trireme::SequenceStep& s : plan.sequences)
      if (s.past + s.tokens > trireme::test::kWindowBounds.length ||
          s.first_token + s.tokens > std::ssize(plan.tokens))
        std::abort();
    for (const trireme::TableStep& t : plan.tables)
      if (t.first_block + t.blocks > std::ssize(plan.blocks)) std::abort();
  } catch (const trireme::BadMessage&) {  // refused: expected
  }
  return 0;
}
