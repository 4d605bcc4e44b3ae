// Constraint on a text whose masks a test controls.
#pragma once

#include <gtest/gtest.h>

#include "serving/scheduler/text_rule.h"

namespace trireme::test {

// Rule that allows every token and ends after `length` tokens. The test sets how many masks are
// ready.
struct SlowRule final : TextRule {
  struct Reader final : RuleReader {
    explicit Reader(const SlowRule& its_rule) : rule(its_rule) {}
    State state() override {
      if (now == State::kPending && rule.masks > read)
        now = rule.refuses ? State::kRefused : read == rule.length ? State::kEnded : State::kOpen;
      return now;
    }
    std::span<const uint32_t> mask() const override { return all; }
    State accept(std::span<const int32_t> ids) override {
      EXPECT_EQ(now, State::kOpen);
      read += std::ssize(ids);
      now = State::kPending;
      return rule.late ? now : state();
    }
    size_t look_ahead(std::span<const int32_t>, std::vector<uint32_t>&) override { return 0; }
    bool is_whole() const override { return true; }
    const SlowRule& rule;
    State now = State::kPending;
    int64_t read = 0;
    std::vector<uint32_t> all = {~0u, ~0u};
  };
  std::unique_ptr<RuleReader> begin(std::vector<int32_t>, int64_t,
                                    std::shared_ptr<MaskPace>) const override {
    return std::make_unique<Reader>(*this);
  }
  int64_t masks = 0;  // masks that are ready
  bool late = false;  // each becomes ready just after accept() has returned
  int64_t length = 4;
  bool refuses = false;
};

}  // namespace trireme::test
