// Executor without a model: blocks of its KV cache hold the tokens themselves. The next token is a
// hash of everything that the last token attends to in a sequence's block tables, so that any error
// in blocks changes the output.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "serving/scheduler/block_table.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme::test {

inline int32_t next_of(std::span<const int32_t> text, int32_t vocabulary) {
  uint64_t hash = 1469598103934665603ull;
  for (const int32_t token : text) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211ull;
  return static_cast<int32_t>((hash >> 20) % static_cast<uint64_t>(vocabulary));
}

// Number of tokens before those that the last of `count` tokens attends to
// (transformer/pass/kv_groups.h).
inline int64_t unseen_by_last(int64_t count, int64_t window) {
  if (window < 0) return (count - 1) / -window * -window;
  return window == 0 ? 0 : std::max<int64_t>(count - window, 0);
}

// Tokens that the last token of a text attends to, in each group of layers.
inline std::vector<int32_t> seen_by_last(std::span<const int32_t> text,
                                         const std::vector<int64_t>& windows) {
  std::vector<int32_t> seen;
  for (const int64_t window : windows) {
    const auto part = text.subspan(static_cast<size_t>(unseen_by_last(std::ssize(text), window)));
    seen.insert(seen.end(), part.begin(), part.end());
  }
  return seen;
}

class RecordedTexts final : public StepExecutor {
 public:
  RecordedTexts(int64_t blocks, int64_t block_tokens, int32_t vocabulary,
                std::vector<int64_t> windows = {0})
      : block_tokens_(block_tokens),
        vocabulary_(vocabulary),
        windows_(std::move(windows)),
        cache_(static_cast<size_t>(blocks * block_tokens), -1) {}

  StepOutput execute(const SchedulerOutput& plan) override {
    StepOutput result;
    result.number = plan.number;
    for (const SlotStart& start : plan.starts) {
      tables_[start.slot].assign(windows_.size(), {});
      choices_[start.slot] = start.sampling_params;
      prompts_[start.slot] = start.prompt_tokens;
    }
    tokens += std::ssize(plan.tokens);
    max_running_sequences = std::max(max_running_sequences, std::ssize(plan.sequences));
    EXPECT_EQ(plan.tables.size(), plan.sequences.size() * windows_.size());
    for (size_t n = 0; n < plan.tables.size(); ++n) {
      const SequenceStep& step = plan.sequences[n / windows_.size()];
      BlockTable& table = tables_[step.slot].at(n % windows_.size());
      change(table, plan.tables[n], plan.blocks);
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
  size_t at(const BlockTable& table, int64_t token) const {
    EXPECT_TRUE(table.has(token / block_tokens_)) << "token " << token << " has no block";
    return row(table.block(token / block_tokens_), token % block_tokens_);
  }
  static void change(BlockTable& table, const TableStep& step, std::span<const int32_t> blocks) {
    while (!table.blocks.empty() && table.first < step.first) {
      table.blocks.erase(table.blocks.begin());
      ++table.first;
    }
    table.first = step.first;
    EXPECT_EQ(std::ssize(table.blocks), step.kept_blocks);
    for (int32_t n = 0; n < step.blocks; ++n)
      table.blocks.push_back(blocks[static_cast<size_t>(step.first_block + n)]);
  }
  // Tokens that the last of `count` tokens attends to in a group.
  std::vector<int32_t> seen(const SequenceStep& step, size_t group, int64_t count) const {
    std::vector<int32_t> out;
    for (int64_t i = unseen_by_last(count, windows_[group]); i < count; ++i)
      out.push_back(cache_[at(tables_.at(step.slot)[group], i)]);
    return out;
  }
  // The token after the first `count`.
  int32_t next(const SequenceStep& step, int64_t count) const {
    if (script.empty()) {
      std::vector<int32_t> all;
      for (size_t group = 0; group < windows_.size(); ++group)
        std::ranges::copy(seen(step, group, count), std::back_inserter(all));
      return next_of(all, vocabulary_);
    }
    const auto written = static_cast<size_t>(count - prompts_.at(step.slot));
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
    const int64_t count = step.past + step.tokens - step.draft_tokens;
    std::vector<int32_t> text = seen(step, 0, count);
    if (step.embeds) {
      // A prompt that starts with 255 has no finite embedding.
      const bool finite = text.front() != 255;
      const auto first = static_cast<float>(next_of(text, vocabulary_));
      result.embeddings.push_back({finite ? first : std::nanf(""), 3, 4});
    }
    if (step.samples) {
      // After 254 and one more token the mask allows nothing.
      const bool all_forbidden = text.front() == 254 && text.size() > 1;
      const int32_t id = all_forbidden ? kNothingLeft : allowed(plan, step, next(step, count));
      result.sampled.push_back({id, -1.5, id < 0 ? std::vector<TokenLogprob>{} : top_of(step, id)});
    }
    for (int64_t i = count; i < step.past + step.tokens; ++i) {
      if (result.sampled.back().id != cache_[at(tables_[step.slot][0], i)]) break;
      const auto draft_index = static_cast<int32_t>(i + 1 - count);
      result.sampled.push_back({allowed(plan, step, next(step, i + 1), draft_index), -1.5, {}});
    }
    if (step.scored == 0) return;
    std::vector<OutputToken>& scored = result.prompt.emplace_back();
    text.push_back(step.following);
    for (int64_t i = 0; i < step.scored; ++i)
      scored.push_back(
          {text.at(static_cast<size_t>(step.past + step.first_scored + i + 1)), -2.5, {}});
  }

  // The sampled token is the most probable one, followed by the ids after it.
  std::vector<TokenLogprob> top_of(const SequenceStep& step, int32_t id) const {
    std::vector<TokenLogprob> top;
    const auto params = choices_.find(step.slot);
    if (params == choices_.end() || params->second == nullptr) return top;
    for (int32_t i = 0; i < std::min(params->second->top_logprobs, vocabulary_); ++i)
      top.push_back({(id + i) % vocabulary_, -1.5 - 0.25 * i});
    return top;
  }

  int64_t block_tokens_;
  int32_t vocabulary_;
  std::vector<int64_t> windows_;  // of the groups of layers
  std::vector<int32_t> cache_;
  std::map<int32_t, std::vector<BlockTable>> tables_;
  std::map<int32_t, std::shared_ptr<const SamplingParams>> choices_;
  std::map<int32_t, int64_t> prompts_;  // token counts of the prompts
};

}  // namespace trireme::test
