// Executor without a model: blocks of its KV cache hold the tokens themselves. The next token is a
// hash of everything that a sequence's block table refers to, so that any error in blocks changes
// the output.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "serving/scheduler/scheduler_output.h"

namespace trireme::test {

inline int32_t next_of(std::span<const int32_t> text, int32_t vocabulary) {
  uint64_t hash = 1469598103934665603ull;
  for (const int32_t token : text) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211ull;
  return static_cast<int32_t>((hash >> 20) % static_cast<uint64_t>(vocabulary));
}

class RecordedTexts final : public StepExecutor {
 public:
  RecordedTexts(int64_t blocks, int64_t block_tokens, int32_t vocabulary)
      : block_tokens_(block_tokens),
        vocabulary_(vocabulary),
        cache_(static_cast<size_t>(blocks * block_tokens), -1) {}

  StepOutput execute(const SchedulerOutput& plan) override {
    StepOutput result;
    result.number = plan.number;
    for (const SlotStart& start : plan.starts) {
      tables_[start.slot].clear();
      choices_[start.slot] = start.choice;
      prompts_[start.slot] = start.prompt_tokens;
    }
    tokens += std::ssize(plan.tokens);
    max_running_sequences = std::max(max_running_sequences, std::ssize(plan.sequences));
    for (const SequenceStep& step : plan.sequences) {
      std::vector<int32_t>& table = tables_[step.slot];
      EXPECT_EQ(std::ssize(table), step.kept_blocks);
      table.insert(table.end(), plan.blocks.data() + step.first_block,
                   plan.blocks.data() + step.first_block + step.blocks);
      for (int32_t i = 0; i < step.tokens; ++i)
        cache_[at(table, step.past + i)] = plan.tokens[static_cast<size_t>(step.first_token + i)];
    }
    for (const SequenceStep& step : plan.sequences) finish(plan, step, result);
    return result;
  }

  // Output of every sequence instead of the hash; its last token repeats.
  std::vector<int32_t> script = {};
  int64_t tokens = 0;  // computed so far
  std::ptrdiff_t max_running_sequences = 0;

 private:
  size_t row(int32_t block, int64_t token) const {
    return static_cast<size_t>(block * block_tokens_ + token);
  }
  size_t at(const std::vector<int32_t>& table, int64_t token) const {
    return row(table.at(static_cast<size_t>(token / block_tokens_)), token % block_tokens_);
  }
  int32_t next(const SequenceStep& step, std::span<const int32_t> text) const {
    if (script.empty()) return next_of(text, vocabulary_);
    const size_t written = text.size() - static_cast<size_t>(prompts_.at(step.slot));
    return script[std::min(written, script.size() - 1)];
  }
  // The next token, or the first one after it that the mask allows.
  int32_t allowed(const SchedulerOutput& plan, const SequenceStep& step, int32_t id,
                  int32_t draft_index = 0) const {
    if (step.mask < 0) return id;
    int32_t rows = 0;
    for (const SequenceStep& s : plan.sequences) rows += s.mask < 0 ? 0 : 1 + s.draft_tokens;
    const size_t words = plan.masks.size() / static_cast<size_t>(rows);
    const uint32_t* mask = plan.masks.data() + static_cast<size_t>(step.mask + draft_index) * words;
    const auto ids = static_cast<int32_t>(words * 32);
    for (int32_t tried = 0; (mask[id / 32] >> (id % 32) & 1) == 0; id = (id + 1) % ids)
      if (++tried > ids) return -1;
    return id;
  }
  void finish(const SchedulerOutput& plan, const SequenceStep& step, StepOutput& result) {
    std::vector<int32_t> text;
    for (int64_t i = 0; i < step.past + step.tokens - step.draft_tokens; ++i)
      text.push_back(cache_[at(tables_[step.slot], i)]);
    if (step.embeds) {
      // A prompt that starts with 255 has no finite embedding.
      const bool finite = text.front() != 255;
      const auto first = static_cast<float>(next_of(text, vocabulary_));
      result.embeddings.push_back({finite ? first : std::nanf(""), 3, 4});
    }
    if (step.samples) {
      // After 254 and one more token the mask allows nothing.
      const bool all_forbidden = text.front() == 254 && text.size() > 1;
      const int32_t id = all_forbidden ? kNothingLeft : allowed(plan, step, next(step, text));
      result.chosen.push_back({id, -1.5, id < 0 ? std::vector<TokenLogprob>{} : top_of(step, id)});
    }
    for (int64_t i = step.past + step.tokens - step.draft_tokens; i < step.past + step.tokens;
         ++i) {
      if (result.chosen.back().id != cache_[at(tables_[step.slot], i)]) break;
      text.push_back(result.chosen.back().id);
      const auto draft_index =
          static_cast<int32_t>(i + 1 - (step.past + step.tokens - step.draft_tokens));
      result.chosen.push_back({allowed(plan, step, next(step, text), draft_index), -1.5, {}});
    }
    if (step.asked == 0) return;
    std::vector<OutputToken>& asked = result.prompt.emplace_back();
    text.push_back(step.following);
    for (int64_t i = 0; i < step.asked; ++i)
      asked.push_back(
          {text.at(static_cast<size_t>(step.past + step.first_asked + i + 1)), -2.5, {}});
  }

  // The sampled token is the most probable one, followed by the ids after it.
  std::vector<TokenLogprob> top_of(const SequenceStep& step, int32_t id) const {
    std::vector<TokenLogprob> top;
    const auto choice = choices_.find(step.slot);
    if (choice == choices_.end() || choice->second == nullptr) return top;
    for (int32_t i = 0; i < std::min(choice->second->top_logprobs, vocabulary_); ++i)
      top.push_back({(id + i) % vocabulary_, -1.5 - 0.25 * i});
    return top;
  }

  int64_t block_tokens_;
  int32_t vocabulary_;
  std::vector<int32_t> cache_;
  std::map<int32_t, std::vector<int32_t>> tables_;
  std::map<int32_t, std::shared_ptr<const SamplingParams>> choices_;
  std::map<int32_t, int64_t> prompts_;  // token counts of the prompts
};

}  // namespace trireme::test
