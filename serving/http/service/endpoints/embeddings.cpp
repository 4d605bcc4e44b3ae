#include "serving/api/endpoints/embeddings.h"

#include "serving/api/embeddings_response.h"
#include "serving/http/service/embedding.h"
#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HandlerResult embeddings(ServiceContext& service, HttpRequest& http) {
  const EmbeddingsRequest request = service.read(parse_embeddings, http.body);
  const ServedId model = service.find_model(request.model);
  const int64_t size = service.config.embedding_size;
  if (request.dimensions.value_or(1) > size)
    fail_field("dimensions", "dimensions must be at most ", size,
               ", the size of the model's embeddings");
  const int64_t dimensions = request.dimensions.value_or(size);
  const int64_t longest = service.config.max_model_len;
  const int64_t kept = request.truncate_prompt_tokens.value_or(0);
  if (kept > longest)
    fail_field("truncate_prompt_tokens", "truncate_prompt_tokens must be at most ", longest,
               ", the maximum length of a text");
  EmbeddingResponse response{
      .dimensions = dimensions,
      .normalizes = request.normalize,
      .bytes = embeddings_bytes(std::ssize(request.inputs), dimensions, request.format.base64),
      .way_out = "use fewer texts or dimensions at once, or base64",
      .write_body = [id = request.model, format = request.format](const auto& vectors,
                                                                  int64_t tokens) {
        return embeddings_body(id, vectors, tokens, format);
      }};
  return embed(service, http, model,
               {.texts = request.inputs,
                .param = "input",
                .add_special = request.add_special,
                .kept_tokens = kept < 0 ? longest : kept,
                .keeps_end = request.keeps_end,
                .salt = request.cache_salt},
               std::move(response));
}

}  // namespace

extern const Handler kEmbeddingsHandler = {kEmbeddingsEndpoint, embeddings};

}  // namespace trireme
