#include "serving/api/endpoints/embeddings.h"

#include "serving/api/embeddings_reply.h"
#include "serving/http/service/embedding.h"
#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HttpAnswer embeddings(ServiceContext& service, HttpRequest& http) {
  const EmbeddingsRequest request = service.read(parse_embeddings, http.body);
  const ServedId model = service.find_model(request.model);
  const int64_t size = service.config.embedding_size;
  if (request.dimensions.value_or(1) > size)
    fail_field("dimensions", "dimensions must be at most ", size,
               ", which the model's embeddings have");
  const int64_t dimensions = request.dimensions.value_or(size);
  EmbeddingResponse response{
      .dimensions = dimensions,
      .bytes = embeddings_bytes(std::ssize(request.inputs), dimensions, request.base64),
      .way_out = "ask for fewer texts or dimensions at once, or for base64",
      .write_body = [id = request.model, base64 = request.base64](const auto& vectors,
                                                                  int64_t tokens) {
        return embeddings_body(id, vectors, tokens, base64);
      }};
  return embed(service, http, model, request.inputs, "input", std::move(response));
}

}  // namespace

extern const Handler kEmbeddingsHandler = {kEmbeddingsEndpoint, embeddings};

}  // namespace trireme
