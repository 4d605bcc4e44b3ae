// Field lists of a scheduler output and its step output, in the order in which the fields are sent.
//
// members(record) returns references to all fields of a record. Its structured binding must name
// every field, so that a struct with a new field does not compile until the list has it.
#pragma once

#include <concepts>
#include <tuple>
#include <type_traits>

#include "serving/scheduler/scheduler_output.h"

namespace trireme {

template <class S, class Record>
concept RecordOf = std::same_as<std::remove_const_t<S>, Record>;

template <RecordOf<RowSamplingParams> S>
auto members(S& record) {
  auto& [temperature, top_k, top_p, min_p, seed, typical_p] = record;
  return std::tie(temperature, top_k, top_p, min_p, seed, typical_p);
}

template <RecordOf<SamplingParams> S>
auto members(S& record) {
  auto& [sampling, repetition_penalty, frequency_penalty, presence_penalty, top_logprobs,
         prompt_logprobs, min_tokens, stop_token_ids, logit_bias, bad_words] = record;
  return std::tie(sampling, repetition_penalty, frequency_penalty, presence_penalty, top_logprobs,
                  prompt_logprobs, min_tokens, stop_token_ids, logit_bias, bad_words);
}

template <RecordOf<SlotStart> S>
auto members(S& record) {
  auto& [slot, prompt_tokens, history, generated, draw, adapter, sampling_params] = record;
  return std::tie(slot, prompt_tokens, history, generated, draw, adapter, sampling_params);
}

template <RecordOf<SequenceStep> S>
auto members(S& record) {
  auto& [slot, first_token, tokens, past, samples, draft_tokens, embeds, mask, first_scored, scored,
         following] = record;
  return std::tie(slot, first_token, tokens, past, samples, draft_tokens, embeds, mask,
                  first_scored, scored, following);
}

template <RecordOf<TableStep> S>
auto members(S& record) {
  auto& [first, kept_blocks, first_block, blocks] = record;
  return std::tie(first, kept_blocks, first_block, blocks);
}

template <RecordOf<SchedulerOutput> S>
auto members(S& record) {
  auto& [number, starts, sequences, tables, tokens, blocks, masks] = record;
  return std::tie(number, starts, sequences, tables, tokens, blocks, masks);
}

template <RecordOf<TokenLogprob> S>
auto members(S& record) {
  auto& [id, logprob] = record;
  return std::tie(id, logprob);
}

template <RecordOf<OutputToken> S>
auto members(S& record) {
  auto& [id, logprob, top, rank] = record;
  return std::tie(id, logprob, top, rank);
}

template <RecordOf<StepOutput> S>
auto members(S& record) {
  auto& [number, sampled, prompt, embeddings, sampling_seconds, total_sampling_seconds] = record;
  return std::tie(number, sampled, prompt, embeddings, sampling_seconds, total_sampling_seconds);
}

}  // namespace trireme
