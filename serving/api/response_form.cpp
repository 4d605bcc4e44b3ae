#include "serving/api/response_form.h"

namespace trireme {
namespace {

ResponseForm common_form(const GenerationRequest& request) {
  ResponseForm form;
  form.stream = request.stream;
  form.include_usage = request.include_usage;
  form.usage_in_each = request.usage_in_each;
  form.top_logprobs = request.top_logprobs;
  form.prompt_logprobs = request.prompt_logprobs;
  form.tokens_as_ids = request.tokens_as_ids;
  form.token_ids = request.token_ids;
  form.stop_ids = request.stop_token_ids;
  form.n = request.n;
  form.text = {.stops = request.stop,
               .include_stop = request.include_stop,
               .min_tokens = request.min_tokens,
               .show_special = !request.skip_special,
               .report_tokens = request.top_logprobs >= 0};
  return form;
}

}  // namespace

ResponseForm form_of(const CompletionRequest& request) {
  ResponseForm form = common_form(request);
  form.echo = request.echo;
  if (request.best_of > request.n) {
    form.returned = request.n;
    form.n = request.best_of;
  }
  form.without_text = request.max_tokens == 0;
  return form;
}

ResponseForm form_of(const ChatRequest& request) {
  ResponseForm form = common_form(request);
  form.chat = true;
  return form;
}

}  // namespace trireme
