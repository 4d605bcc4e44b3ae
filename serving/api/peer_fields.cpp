#include "serving/api/peer_fields.h"

#include <algorithm>
#include <string_view>

namespace trireme {
namespace {

using enum PeerEffect;

// Reasons and ways out shared by several rows.
constexpr char kTextOnly[] = "only text is served";
constexpr char kNothingStored[] = "nothing is stored";
constexpr char kPrefixCache[] = "equal prefixes are shared without a key";
constexpr char kIdHeader[] = "the header X-Request-Id sets the id";
constexpr char kWholeReasoning[] = "reasoning is returned within the content";
constexpr char kNoExtensions[] = "extensions are not loaded; leave it out";
constexpr char kOneServer[] = "prefill and decode run on one server; leave it out";
constexpr char kNoShift[] = "the context is not shifted";
constexpr char kDraftsOnly[] = "drafts change only the speed";
constexpr char kRenderOnly[] = "vLLM uses it only at its render endpoints";
constexpr char kMaxTokens[] = "use max_tokens";
constexpr char kFullPrompt[] = "send the full prompt";
constexpr char kAdapterModel[] = "send the adapter's id as model";
constexpr char kWholeGrammar[] = "a grammar applies from the first token; leave it out";
constexpr char kTools[] = "use tools";
constexpr char kTokenizeFirst[] = "send the tokens of the conversation (/tokenize) as input";
constexpr char kPromptTokens[] = "send texts or token ids";
constexpr char kParserOption[] = "the server's option --tool-call-parser sets it";
constexpr char kWithDry[] = "used only with dry_multiplier, which is refused";
constexpr char kWithMirostat[] = "used only with mirostat, which is refused";
constexpr char kWithBudget[] = "used only with reasoning_budget_tokens, which is refused";
constexpr char kWithMessages[] = "used only with messages, which is refused";

constexpr PeerField kRows[] = {
    // Used: the model, the prompt and the length.
    {"model", "che", "OVSLA", kUsed},
    {"model", "td", "VS", kUsed},
    {"prompt", "c", "OVSLA", kUsed},
    {"prompt", "t", "VS", kUsed},
    {"messages", "h", "OVSLA", kUsed},
    {"messages", "t", "VS", kUsed},
    {"input", "e", "OVSLA", kUsed},
    {"tokens", "d", "VSL", kUsed},
    {"max_tokens", "ch", "OVSLA", kUsed},
    {"max_completion_tokens", "h", "OVSL", kUsed},
    {"max_completion_tokens", "c", "L", kUsed, "max_tokens"},
    {"n_predict", "c", "L", kUsed, "max_tokens", "-1"},
    {"n_predict", "h", "L", kUsed, "max_tokens", "-1"},
    {"max_new_tokens", "ch", "S", kUsed, "max_tokens"},
    {"min_tokens", "ch", "VS", kUsed},
    {"min_new_tokens", "ch", "S", kUsed, "min_tokens"},
    {"n", "ch", "OVSL", kUsed},
    {"n_cmpl", "ch", "L", kUsed, "n"},
    {"best_of", "c", "OS", kUsed},
    {"echo", "c", "OVSL", kUsed},
    // Used: sampling and the end of a text.
    {"temperature", "ch", "OVSLA", kUsed},
    {"top_p", "ch", "OVSLA", kUsed},
    {"top_k", "ch", "VSL", kUsed},
    {"min_p", "ch", "VSL", kUsed},
    {"typical_p", "ch", "L", kUsed},
    {"repetition_penalty", "ch", "VS", kUsed},
    {"frequency_penalty", "ch", "OVSLA", kUsed},
    {"presence_penalty", "ch", "OVSLA", kUsed},
    {"seed", "ch", "OVSLA", kUsed},
    {"logit_bias", "ch", "OVSL", kUsed},
    {"bad_words", "ch", "V", kUsed},
    {"use_beam_search", "ch", "V", kUsed},
    {"length_penalty", "ch", "V", kUsed},
    {"stop", "ch", "OVSLA", kUsed},
    {"stop_token_ids", "ch", "VS", kUsed},
    {"include_stop_str_in_output", "ch", "V", kUsed},
    {"no_stop_trim", "ch", "S", kUsed, "include_stop_str_in_output"},
    {"ignore_eos", "ch", "VSL", kUsed},
    {"skip_special_tokens", "ch", "VS", kUsed},
    {"skip_special_tokens", "d", "S", kUsed},
    // Used: constraints, tools and the chat template.
    {"response_format", "ch", "OVSLA", kUsed},
    {"structured_outputs", "ch", "V", kUsed},
    {"json_schema", "ch", "SL", kUsed},
    {"grammar", "ch", "L", kUsed},
    {"regex", "ch", "S", kUsed},
    {"ebnf", "ch", "S", kUsed},
    {"guided_json", "ch", "V", kUsed},
    {"guided_regex", "ch", "V", kUsed},
    {"guided_choice", "ch", "V", kUsed},
    {"guided_grammar", "ch", "V", kUsed},
    {"tools", "h", "OVSLA", kUsed},
    {"tools", "t", "VS", kUsed},
    {"tool_choice", "h", "OVSL", kUsed},
    {"parallel_tool_calls", "h", "OVSL", kUsed},
    {"add_generation_prompt", "ht", "VL", kUsed},
    {"continue_final_message", "ht", "VSL", kUsed},
    {"chat_template", "ht", "V", kUsed},
    {"chat_template_kwargs", "ht", "VSL", kUsed},
    {"documents", "h", "V", kUsed},
    {"reasoning_effort", "h", "OVSLA", kUsed},
    {"reasoning_effort", "t", "S", kUsed},
    {"add_special_tokens", "chet", "VS", kUsed},
    // Used: what is returned, and how.
    {"logprobs", "ch", "OVSLA", kUsed},
    {"top_logprobs", "h", "OVSA", kUsed},
    {"prompt_logprobs", "ch", "V", kUsed},
    {"return_tokens_as_token_ids", "ch", "V", kUsed},
    {"return_token_ids", "ch", "VS", kUsed},
    {"return_token_strs", "t", "V", kUsed},
    {"stream", "ch", "OVSLA", kUsed},
    {"stream_options", "ch", "OVSLA", kUsed},
    {"priority", "ch", "VS", kUsed},
    {"cache_salt", "ch", "VS", kUsed},
    {"cache_salt", "e", "V", kUsed},
    {"encoding_format", "e", "OVSLA", kUsed},
    {"dimensions", "e", "OVSA", kUsed},
    {"embed_dtype", "e", "V", kUsed},
    {"endianness", "e", "V", kUsed},
    {"normalize", "e", "V", kUsed},
    {"use_activation", "e", "V", kUsed, "normalize"},
    {"truncate_prompt_tokens", "e", "V", kUsed},
    {"truncation_side", "e", "V", kUsed},
    {"lora_name", "lu", "V", kUsed},
    {"lora_path", "l", "V", kUsed},
    // Without effect.
    {"user", "che", "OVS", kNoEffect, "an API key identifies a tenant"},
    {"metadata", "ch", "O", kNoEffect, kNothingStored},
    {"store", "ch", "O", kNoEffect, kNothingStored},
    {"service_tier", "ch", "O", kNoEffect, "there is one tier; see priority"},
    {"safety_identifier", "ch", "O", kNoEffect, "an API key identifies a tenant"},
    {"prompt_cache_key", "ch", "O", kNoEffect, kPrefixCache},
    {"prompt_cache_retention", "ch", "O", kNoEffect, kPrefixCache},
    {"prompt_cache_options", "ch", "O", kNoEffect, kPrefixCache},
    {"prediction", "h", "O", kNoEffect, kDraftsOnly},
    {"request_id", "che", "V", kNoEffect, kIdHeader},
    {"rid", "che", "S", kNoEffect, kIdHeader},
    {"session_id", "ch", "VS", kNoEffect, "requests are independent of each other"},
    {"stream_interval", "ch", "V", kNoEffect, "each event has all tokens since the previous one"},
    {"spaces_between_special_tokens", "ch", "V", kNoEffect, "it applies only to slow tokenizers"},
    {"guided_decoding_backend", "ch", "V", kNoEffect, "there is one backend"},
    {"truncation_side", "ch", "V", kNoEffect,
     "used only with truncate_prompt_tokens, which is refused"},
    {"return_token_offsets", "ch", "V", kNoEffect, kRenderOnly},
    {"return_mm_kwargs", "ch", "V", kNoEffect, kRenderOnly},
    {"routed_experts_prompt_start", "ch", "V", kNoEffect, "routing data is not returned"},
    {"routed_experts_start_len", "ch", "S", kNoEffect,
     "used only with return_routed_experts, which is refused"},
    {"media_io_kwargs", "het", "V", kNoEffect, kTextOnly},
    {"mm_processor_kwargs", "het", "V", kNoEffect, kTextOnly},
    {"images_config", "ch", "S", kNoEffect, kTextOnly},
    {"max_dynamic_patch", "h", "S", kNoEffect, kTextOnly},
    {"min_dynamic_patch", "h", "S", kNoEffect, kTextOnly},
    {"use_audio_in_video", "h", "S", kNoEffect, kTextOnly},
    {"routed_dp_rank", "ch", "S", kNoEffect, "the server selects the replica"},
    {"data_parallel_rank", "ch", "S", kNoEffect, "the server selects the replica"},
    {"ngram_corpus_id", "ch", "S", kNoEffect, kDraftsOnly},
    {"custom_labels", "c", "S", kNoEffect, "metrics have no labels that clients set"},
    {"cache_prompt", "ch", "L", kNoEffect, "use cache_salt to separate caches"},
    {"n_cache_reuse", "ch", "L", kNoEffect, "only equal prefixes are reused"},
    {"n_keep", "ch", "L", kNoEffect, kNoShift},
    {"n_discard", "ch", "L", kNoEffect, kNoShift},
    {"id_slot", "ch", "L", kNoEffect, "the scheduler places requests"},
    {"sse_ping_interval", "ch", "L", kNoEffect, "the server sets the interval"},
    {"backend_sampling", "ch", "L", kNoEffect, "it only selects the device of the samplers"},
    {"speculative.n_max", "ch", "L", kNoEffect, kDraftsOnly},
    {"speculative.n_min", "ch", "L", kNoEffect, kDraftsOnly},
    {"speculative.p_min", "ch", "L", kNoEffect, kDraftsOnly},
    {"xtc_threshold", "ch", "L", kNoEffect, "used only with xtc_probability, which is refused"},
    {"dynatemp_exponent", "ch", "L", kNoEffect, "used only with dynatemp_range, which is refused"},
    {"mirostat_tau", "ch", "L", kNoEffect, kWithMirostat},
    {"mirostat_eta", "ch", "L", kNoEffect, kWithMirostat},
    {"dry_base", "ch", "L", kNoEffect, kWithDry},
    {"dry_allowed_length", "ch", "L", kNoEffect, kWithDry},
    {"dry_penalty_last_n", "ch", "L", kNoEffect, kWithDry},
    {"dry_sequence_breakers", "ch", "L", kNoEffect, kWithDry},
    {"adaptive_decay", "ch", "L", kNoEffect, "used only with adaptive_target, which is refused"},
    {"reasoning_budget_start_tag", "ch", "L", kNoEffect, kWithBudget},
    {"reasoning_budget_end_tag", "ch", "L", kNoEffect, kWithBudget},
    {"reasoning_budget_end_tags", "ch", "L", kNoEffect, kWithBudget},
    {"reasoning_budget_message", "ch", "L", kNoEffect, kWithBudget},
    {"keep_alive", "che", "A", kNoEffect, "the model stays loaded"},
    {"add_generation_prompt", "e", "V", kNoEffect, kWithMessages},
    {"continue_final_message", "e", "V", kNoEffect, kWithMessages},
    {"chat_template", "e", "V", kNoEffect, kWithMessages},
    {"chat_template_kwargs", "e", "V", kNoEffect, kWithMessages},
    {"lora_int_id", "lu", "V", kNoEffect, "a name identifies an adapter"},
    {"is_3d_lora_weight", "l", "V", kNoEffect, "the layout is read from the files"},
    {"return_progress", "ch", "L", kNoEffect, "/metrics has these numbers"},
    {"timings_per_token", "ch", "L", kNoEffect, "/metrics has these numbers"},
    {"verbose", "ch", "L", kNoEffect, "the server's log has the details"},
    {"return_meta_info", "h", "S", kNoEffect, "usage has these numbers"},
    // Refused: the prompt.
    {"suffix", "c", "OVSA", kRefused, "write the model's infilling tokens into the prompt", "\"\""},
    {"echo", "h", "VL", kRefused, "use /v1/completions", "false"},
    {"prompt_embeds", "c", "V", kRefused, kPromptTokens},
    {"input_ids", "h", "S", kRefused, "send them as the prompt of /v1/completions"},
    {"task", "h", "S", kRefused, "write its token into the prompt of /v1/completions"},
    {"truncate_prompt_tokens", "ch", "V", kRefused, "prompts are not truncated: shorten it"},
    {"session_params", "ch", "S", kRefused, kFullPrompt, "{}"},
    {"context", "ch", "A", kRefused, kFullPrompt, "[]"},
    {"template", "ch", "A", kRefused, "use chat_template"},
    {"system", "ch", "A", kRefused, "send a message of the role system", "\"\""},
    {"images", "ch", "A", kRefused, kTextOnly, "[]"},
    {"raw", "ch", "A", kRefused, "use /v1/completions", "false"},
    {"options", "che", "A", kRefused, "send its members as fields of the request", "{}"},
    {"content", "e", "L", kRefused, "use input"},
    {"messages", "e", "V", kRefused, kTokenizeFirst},
    {"embed_overrides", "e", "S", kRefused, kPromptTokens},
    {"embed_override_token_id", "e", "S", kRefused, kPromptTokens},
    {"padding", "e", "V", kRefused, "texts are not padded", "\"do_not_pad\""},
    {"truncate", "e", "A", kRefused, "use truncate_prompt_tokens", "false"},
    {"content", "t", "L", kRefused, "use prompt"},
    {"add_special", "t", "L", kRefused, "use add_special_tokens"},
    {"parse_special", "t", "L", kRefused, "send the token ids themselves", "false"},
    {"tool_choice", "t", "S", kRefused, "leave out tools instead of sending \"none\"", "\"auto\""},
    // Refused: sampling and constraints.
    {"allowed_token_ids", "ch", "V", kRefused, "use logit_bias or structured_outputs"},
    {"repetition_detection", "ch", "V", kRefused, "use repetition_penalty"},
    {"watermarking", "ch", "V", kRefused, "texts have no watermark", "false"},
    {"repeat_penalty", "ch", "L", kRefused, "use repetition_penalty, which counts all tokens", "1"},
    {"repeat_last_n", "ch", "L", kRefused, "penalties count all tokens, as with -1", "-1 64"},
    {"top_n_sigma", "ch", "L", kRefused, "use min_p", "-1 0"},
    {"xtc_probability", "ch", "L", kRefused, "use temperature", "0"},
    {"dynatemp_range", "ch", "L", kRefused, "use temperature", "0"},
    {"mirostat", "ch", "L", kRefused, "use top_p or min_p", "0"},
    {"dry_multiplier", "ch", "L", kRefused, "use repetition_penalty", "0"},
    {"adaptive_target", "ch", "L", kRefused, "use temperature", "-1"},
    {"samplers", "ch", "L", kRefused, "the order of samplers is fixed; leave it out", "[]"},
    {"min_keep", "ch", "L", kRefused, "use a larger top_p or a smaller min_p", "0 1"},
    {"n_indent", "ch", "L", kRefused, "use a grammar", "0"},
    {"t_max_predict_ms", "ch", "L", kRefused, "send the header X-Request-Timeout-Ms", "0 -1"},
    {"stop_regex", "ch", "S", kRefused, "use stop or a regex of structured_outputs", "[] \"\""},
    {"structural_tag", "ch", "VS", kRefused, "use response_format or a grammar"},
    {"guided_whitespace_pattern", "ch", "V", kRefused, "write the white space into a grammar"},
    {"format", "ch", "A", kRefused, "use response_format", "\"\""},
    {"grammar_lazy", "ch", "L", kRefused, kWholeGrammar, "false"},
    {"grammar_triggers", "ch", "L", kRefused, kWholeGrammar, "[]"},
    {"custom_params", "ch", "S", kRefused, kNoExtensions, "{}"},
    {"custom_logit_processor", "ch", "S", kRefused, kNoExtensions, "\"\""},
    {"vllm_xargs", "ch", "V", kRefused, kNoExtensions, "{}"},
    // Refused: reasoning, tools and kinds of output.
    {"thinking_token_budget", "ch", "V", kRefused, kMaxTokens, "-1"},
    {"reasoning_budget_tokens", "ch", "L", kRefused, kMaxTokens, "-1"},
    {"reasoning_control", "ch", "L", kRefused, kMaxTokens, "false"},
    {"include_reasoning", "h", "V", kRefused, kWholeReasoning, "true"},
    {"separate_reasoning", "h", "S", kNoEffect, kWholeReasoning},
    {"stream_reasoning", "h", "S", kRefused, kWholeReasoning, "true"},
    {"reasoning_format", "ch", "L", kRefused, kWholeReasoning, "\"none\" \"auto\""},
    {"reasoning", "h", "SA", kRefused, "use reasoning_effort", "{}"},
    {"think", "ch", "A", kRefused, "use reasoning_effort or chat_template_kwargs"},
    {"verbosity", "h", "O", kRefused, "write it into a message", "\"medium\""},
    {"functions", "h", "O", kRefused, kTools, "[]"},
    {"function_call", "h", "O", kRefused, "use tool_choice", "\"none\" \"auto\""},
    {"parse_tool_calls", "h", "L", kRefused, "calls are parsed; leave out tools", "true"},
    {"chat_format", "ch", "L", kRefused, kParserOption, "0"},
    {"chat_parser", "ch", "L", kRefused, kParserOption, "\"\""},
    {"generation_prompt", "ch", "L", kRefused, "use continue_final_message", "\"\""},
    {"modalities", "h", "OL", kRefused, "only text is generated", "[\"text\"]"},
    {"audio", "h", "O", kRefused, "only text is generated"},
    {"web_search_options", "h", "O", kRefused, "nothing is fetched: use documents"},
    {"moderation", "ch", "O", kRefused, "texts are not moderated"},
    // Refused: additions to the response.
    {"n_probs", "ch", "L", kRefused, "use logprobs", "0"},
    {"post_sampling_probs", "ch", "L", kRefused, "use logprobs", "false"},
    {"logprob_token_ids", "ch", "V", kRefused, "use the most probable tokens of logprobs"},
    {"return_tokens", "ch", "L", kRefused, "use return_token_ids", "false"},
    {"return_prompt_token_ids", "h", "S", kRefused, "use return_token_ids", "false"},
    {"return_prompt_text", "ch", "V", kRefused, "use return_token_ids", "false"},
    {"return_hidden_states", "ch", "S", kRefused, "use /v1/embeddings", "false"},
    {"return_routed_experts", "ch", "S", kRefused, "routing data is not returned", "false"},
    {"return_cached_tokens_details", "ch", "S", kRefused, "read usage", "false"},
    {"response_fields", "ch", "L", kRefused, "responses have all members", "[]"},
    {"preserved_tokens", "ch", "L", kRefused, "use skip_special_tokens", "[]"},
    {"_debug_render_only", "ch", "A", kRefused, "use /tokenize", "false"},
    {"embd_normalize", "e", "L", kRefused, "use normalize", "2"},
    {"with_pieces", "t", "L", kRefused, "use return_token_strs", "false"},
    // Refused: adapters, caches and other servers.
    {"lora", "ch", "L", kRefused, kAdapterModel, "[]"},
    {"lora_path", "che", "S", kRefused, kAdapterModel},
    {"load_inplace", "l", "V", kRefused, "unload the adapter first", "false"},
    {"extra_key", "ch", "S", kRefused, "use cache_salt", "\"\""},
    {"priority", "e", "VS", kRefused, "embeddings have no priorities", "0"},
    {"kv_transfer_params", "ch", "V", kRefused, kOneServer},
    {"ec_transfer_params", "ch", "V", kRefused, kOneServer},
    {"bootstrap_host", "ch", "S", kRefused, kOneServer},
    {"bootstrap_port", "ch", "S", kRefused, kOneServer},
    {"bootstrap_room", "ch", "S", kRefused, kOneServer},
    {"disagg_prefill_dp_rank", "ch", "S", kRefused, kOneServer},
};

}  // namespace

std::span<const PeerField> peer_fields() { return kRows; }

std::vector<std::string> values_of(const char* nothing) {
  std::vector<std::string> values;
  std::string_view left = nothing;
  while (!left.empty()) {
    const size_t end = std::min(left.find(' '), left.size());
    values.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return values;
}

}  // namespace trireme
