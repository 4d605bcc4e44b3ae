#include "serving/distributed/plan_codec.h"

#include <algorithm>
#include <cmath>

#include "serving/distributed/plan_fields.h"
#include "serving/scheduler/block_table.h"

namespace trireme {
namespace {

constexpr int64_t kMaxLogprobs = 1024;

template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) throw BadMessage(concat("invalid plan: ", parts...));
}

bool within(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }

bool ids_within(const std::vector<int32_t>& ids, int64_t count) {
  return std::ranges::all_of(ids, [&](int32_t id) { return within(id, 0, count - 1); });
}

bool none_negative(const std::vector<int32_t>& ids) {
  return std::ranges::all_of(ids, [](int32_t id) { return id >= 0; });
}

// No stricter than the limits on requests (serving/api/generation_fields.h): a plan that ranks
// reject fails all requests, not only the one at fault. The sampler ignores ids that the model does
// not have, and returns no more log-probabilities than there are ids.
void check_sampling_params(const SamplingParams& params, const PlanBounds& bounds) {
  const RowSamplingParams& s = params.sampling;
  require(s.temperature >= 0 && std::isfinite(s.temperature),
          "expected a finite temperature from 0 on, got ", s.temperature);
  require(s.top_k >= 0, "expected top_k from 0 on, got ", s.top_k);
  require(s.top_p >= 0 && s.top_p <= 1, "expected top_p from 0 to 1, got ", s.top_p);
  require(s.min_p >= 0 && s.min_p <= 1, "expected min_p from 0 to 1, got ", s.min_p);
  require(s.typical_p >= 0 && s.typical_p <= 1, "expected typical_p from 0 to 1, got ",
          s.typical_p);
  require(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty),
          "expected a finite repetition_penalty above 0, got ", params.repetition_penalty);
  require(std::isfinite(params.frequency_penalty), "frequency_penalty is not finite");
  require(std::isfinite(params.presence_penalty), "presence_penalty is not finite");
  for (const int32_t logprobs : {params.top_logprobs, params.prompt_logprobs})
    require(within(logprobs, -1, std::max(bounds.ids, kMaxLogprobs)), logprobs,
            " log-probabilities per token are out of range");
  require(params.min_tokens >= 0, "expected min_tokens from 0 on, got ", params.min_tokens);
  require(none_negative(params.stop_token_ids), "a stop token id is negative");
  for (const auto& [id, bias] : params.logit_bias)
    require(id >= 0 && std::isfinite(bias), "expected a finite bias of a token id, got bias ", bias,
            " for id ", id);
  for (const std::vector<int32_t>& word : params.bad_words)
    require(!word.empty() && none_negative(word), "a bad word has no ids, or a negative one");
}

// Marks a slot; false: it was marked already, or the slot does not exist.
bool mark(std::vector<char>& slots, int32_t slot) {
  return within(slot, 0, std::ssize(slots) - 1) &&
         std::exchange(slots[static_cast<size_t>(slot)], char{1}) == 0;
}

void check_starts(const SchedulerOutput& plan, const PlanBounds& bounds) {
  std::vector<char> slots(static_cast<size_t>(bounds.slots));
  for (const SlotStart& start : plan.starts) {
    require(mark(slots, start.slot), "slot ", start.slot, " of ", bounds.slots,
            " is entered twice, or does not exist");
    require(within(start.prompt_tokens, 1, bounds.length), "a prompt of ", start.prompt_tokens,
            " tokens is empty or too long");
    require(within(start.generated, 0, bounds.length), start.generated,
            " generated tokens are out of range");
    require(within(start.adapter, -1, bounds.adapters - 1), "adapter is ", start.adapter,
            ", expected -1 to ", bounds.adapters - 1);
    require(std::ssize(start.history) <= bounds.length && ids_within(start.history, bounds.ids),
            "history too long, or with an id out of range, in slot ", start.slot);
    check_sampling_params(*start.sampling_params, bounds);
  }
}

void check_sequence(const SequenceStep& s, const SchedulerOutput& plan, const PlanBounds& bounds) {
  require(within(s.tokens, 1, bounds.tokens) && within(s.past, 0, bounds.length - s.tokens),
          s.tokens, " tokens after ", s.past, " are out of range, expected 1 to ", bounds.tokens,
          " and together at most ", bounds.length);
  const int64_t rows = bounds.mask_words == 0 ? 0 : std::ssize(plan.masks) / bounds.mask_words;
  require(within(s.draft_tokens, 0, s.samples ? s.tokens - 1 : 0), s.draft_tokens,
          " draft tokens among ", s.tokens, " tokens are out of range");
  require(s.mask == -1 || within(s.mask, 0, rows - 1 - s.draft_tokens), "mask row ", s.mask, " of ",
          rows, " is out of range with ", s.draft_tokens, " draft tokens");
  require(within(s.scored, 0, s.tokens) && within(s.first_scored, 0, s.tokens - s.scored), s.scored,
          " prompt log-probabilities from token ", s.first_scored, " on are not of this step");
  // The successor of the last token is not in the step's tokens: the plan must name it.
  const bool needs = s.scored > 0 && s.first_scored + s.scored == s.tokens;
  require(within(s.following, needs ? 0 : -1, bounds.ids - 1),
          "expected the id of the following token, got ", s.following, " in slot ", s.slot);
}

// The blocks hold the step's tokens and those before them that the window reaches.
void check_table(const TableStep& table, int64_t window, const SequenceStep& s,
                 const PlanBounds& bounds) {
  const int64_t most = max_table_blocks(bounds.length, window, bounds.block_tokens, bounds.tokens);
  require(within(table.kept_blocks, 0, most) && within(table.blocks, 0, most - table.kept_blocks),
          "blocks out of range: slot ", s.slot, " keeps ", table.kept_blocks, " and gets ",
          table.blocks);
  const int64_t dropped = dropped_blocks(s.past, window, bounds.block_tokens);
  require(table.first == dropped, "slot ", s.slot, " drops ", table.first, " blocks, expected ",
          dropped, " before the tokens after ", s.past, " others");
  const int64_t held =
      (int64_t{table.first} + table.kept_blocks + table.blocks) * bounds.block_tokens;
  require(int64_t{s.past} + s.tokens <= held, "slot ", s.slot, " has blocks for ", held,
          " tokens, expected for ", s.past, " + ", s.tokens);
}

void check_plan(const SchedulerOutput& plan, const PlanBounds& bounds) {
  require(!plan.empty(), "it has no sequences");
  require(std::ssize(plan.tokens) <= bounds.tokens, plan.tokens.size(),
          " tokens, more than a step may have");
  require(ids_within(plan.tokens, bounds.ids), "a token id is negative or not below ", bounds.ids);
  require(ids_within(plan.blocks, bounds.blocks), "a block number is negative or not below ",
          bounds.blocks);
  require(plan.masks.empty() ||
              (bounds.mask_words > 0 && std::ssize(plan.masks) % bounds.mask_words == 0),
          plan.masks.size(), " words of masks are not whole rows");
  check_starts(plan, bounds);
  std::vector<char> slots(static_cast<size_t>(bounds.slots));
  const size_t groups = bounds.windows.size();
  require(plan.tables.size() == groups * plan.sequences.size(), plan.tables.size(),
          " block tables of ", plan.sequences.size(), " sequences, expected ", groups, " of each");
  int64_t tokens = 0, blocks = 0;
  for (size_t n = 0; n < plan.sequences.size(); ++n) {
    const SequenceStep& s = plan.sequences[n];
    require(mark(slots, s.slot), "slot ", s.slot, " of ", bounds.slots,
            " is computed twice, or does not exist");
    check_sequence(s, plan, bounds);
    require(s.first_token == tokens, "the sequences' ranges of tokens are not consecutive");
    tokens += s.tokens;
    for (size_t group = 0; group < groups; ++group) {
      const TableStep& table = plan.tables[n * groups + group];
      check_table(table, bounds.windows[group], s, bounds);
      require(table.first_block == blocks, "the tables' ranges of blocks are not consecutive");
      blocks += table.blocks;
    }
  }
  require(tokens == std::ssize(plan.tokens) && blocks == std::ssize(plan.blocks),
          "the sequences' ranges do not cover all tokens and blocks");
}

}  // namespace

int64_t PlanBounds::max_bytes() const {
  // A request may list a thousand biases and a few thousand words as token ids.
  constexpr int64_t kOfSlot = int64_t{8} << 20;
  int64_t numbers = checked_add(length, mask_words);
  for (const int64_t window : windows)
    numbers = checked_add(numbers, 4 + max_table_blocks(length, window, block_tokens, tokens));
  // Each draft token has its own mask.
  return checked_add(checked_mul(slots, checked_add(kOfSlot, checked_mul(numbers, 4))),
                     checked_mul(tokens, checked_mul(checked_add(mask_words, 1), 4)));
}

std::vector<std::byte> encode_plan(const SchedulerOutput& plan) {
  RecordWriter writer;
  writer.put(plan);
  return writer.take();
}

SchedulerOutput decode_plan(std::span<const std::byte> bytes, const PlanBounds& bounds) {
  SchedulerOutput plan;
  RecordReader reader(bytes);
  reader.get(plan);
  reader.expect_end();
  check_plan(plan, bounds);
  return plan;
}

PlanDecoder::PlanDecoder(const PlanBounds& bounds)
    : bounds_(bounds), tables_(static_cast<size_t>(bounds.slots) * bounds.windows.size()) {}

SchedulerOutput PlanDecoder::decode(std::span<const std::byte> bytes) {
  SchedulerOutput plan = decode_plan(bytes, bounds_);
  require(plan.number > 0 && (last_ == 0 || plan.number - 1 == last_),
          "expected consecutive steps, got step ", plan.number, " after step ", last_);
  last_ = plan.number;
  const size_t groups = bounds_.windows.size();
  const auto tables_of = [&](int32_t slot) {
    return std::span(tables_).subspan(static_cast<size_t>(slot) * groups, groups);
  };
  for (const SlotStart& start : plan.starts)
    std::ranges::fill(tables_of(start.slot), Held{.first = 0, .end = 0});
  for (size_t n = 0; n < plan.tables.size(); ++n) {
    const TableStep& table = plan.tables[n];
    const int32_t slot = plan.sequences[n / groups].slot;
    check_kept(tables_of(slot)[n % groups], table, slot);
  }
  return plan;
}

// A table without blocks may begin anywhere: the sequence's first tokens were in the cache.
void PlanDecoder::check_kept(Held& held, const TableStep& table, int32_t slot) {
  require(held.end != kNothing, "slot ", slot, " has no sequence");
  const bool empty = held.first == held.end;
  const int32_t kept = empty ? 0 : held.end - table.first;
  require(empty || table.first >= held.first, "slot ", slot, " drops ", table.first,
          " blocks of a table, after ", held.first, " before");
  require(kept == table.kept_blocks, "slot ", slot, " has ", kept, " blocks, but the plan keeps ",
          table.kept_blocks);
  held = {table.first, table.first + kept + table.blocks};
}

std::vector<std::byte> encode_output(const StepOutput& outcome) {
  RecordWriter writer;
  writer.put(outcome);
  return writer.take();
}

StepOutput decode_output(std::span<const std::byte> bytes, const SchedulerOutput& plan,
                         int64_t ids) {
  StepOutput outcome;
  RecordReader reader(bytes);
  reader.get(outcome);
  reader.expect_end();
  const auto tokens_fit = [&](const std::vector<OutputToken>& tokens) {
    return std::ranges::all_of(tokens, [&](const OutputToken& token) {
      return within(token.id, kNothingLeft, ids - 1) &&
             std::ranges::all_of(
                 token.top, [&](const TokenLogprob& one) { return within(one.id, 0, ids - 1); });
    });
  };
  std::vector<size_t> scored;
  size_t samples = 0, embeds = 0, draft_tokens = 0;
  for (const SequenceStep& s : plan.sequences) {
    samples += s.samples ? 1 : 0;
    draft_tokens += static_cast<size_t>(s.draft_tokens);
    embeds += s.embeds ? 1 : 0;
    if (s.scored > 0) scored.push_back(static_cast<size_t>(s.scored));
  }
  const auto is_time = [](double seconds) { return seconds >= 0 && seconds < 1e9; };
  const bool timed =
      outcome.sampling_seconds.empty() || outcome.sampling_seconds.size() == plan.sequences.size();
  const bool fits =
      outcome.number == plan.number && timed && is_time(outcome.total_sampling_seconds) &&
      std::ranges::all_of(outcome.sampling_seconds, is_time) && outcome.sampled.size() >= samples &&
      outcome.sampled.size() <= samples + draft_tokens && outcome.embeddings.size() == embeds &&
      tokens_fit(outcome.sampled) &&
      std::ranges::equal(outcome.prompt, scored, [&](const auto& tokens, size_t count) {
        return tokens.size() == count && tokens_fit(tokens);
      });
  if (!fits)
    throw BadMessage(concat("the result of step ", plan.number, " does not match its plan"));
  return outcome;
}

}  // namespace trireme
