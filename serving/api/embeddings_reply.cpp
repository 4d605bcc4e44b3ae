#include "serving/api/embeddings_reply.h"

#include <bit>
#include <cmath>

#include "serving/api/json_writer.h"

namespace trireme {
namespace {

std::string base64_of(std::span<const float> values) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t bytes = values.size() * sizeof(float);
  const auto byte = [&](size_t i) -> uint32_t {
    return i < bytes ? std::bit_cast<uint32_t>(values[i / 4]) >> (8 * (i % 4)) & 0xff : 0;
  };
  std::string out;
  out.reserve((bytes + 2) / 3 * 4);
  for (size_t i = 0; i < bytes; i += 3) {
    const uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (size_t d = 0; d < 4; ++d)
      out += i + d <= bytes ? kDigits[three >> (18 - 6 * d) & 63] : '=';
  }
  return out;
}

}  // namespace

std::vector<float> normalised(std::span<const float> hidden, size_t count) {
  const std::span<const float> kept = hidden.first(std::min(count, hidden.size()));
  double squares = 0;
  for (const float x : kept) squares += static_cast<double>(x) * static_cast<double>(x);
  const double factor = squares > 0 ? 1 / std::sqrt(squares) : 0;
  std::vector<float> out;
  out.reserve(kept.size());
  for (const float x : kept) out.push_back(static_cast<float>(static_cast<double>(x) * factor));
  return out;
}

int64_t embeddings_bytes(int64_t texts, int64_t dimensions, bool base64) {
  constexpr int64_t kOfText = 100;
  // "-1.17549435e-38," or four digits for three bytes.
  const int64_t of_number = int64_t{sizeof(float)} + (base64 ? 6 : 16);
  return texts * (kOfText + dimensions * of_number);
}

std::string embeddings_body(const std::string& model,
                            std::span<const std::vector<float>> embeddings, int64_t prompt_tokens,
                            bool base64) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (size_t i = 0; i < embeddings.size(); ++i) {
    json.begin_object().key("object").string("embedding");
    json.key("index").integer(static_cast<int64_t>(i)).key("embedding");
    if (base64) {
      json.string(base64_of(embeddings[i]));
    } else {
      json.begin_array();
      for (const float x : embeddings[i]) json.number(x);
      json.end_array();
    }
    json.end_object();
  }
  json.end_array().key("model").string(model).key("usage").begin_object();
  json.key("prompt_tokens").integer(prompt_tokens).key("total_tokens").integer(prompt_tokens);
  json.end_object().end_object();
  return body;
}

}  // namespace trireme
