#include "serving/api/embeddings_response.h"

#include <bit>
#include <cmath>

#include "serving/api/json_writer.h"

namespace trireme {
namespace {

std::string base64_of(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto byte = [&](size_t i) -> uint32_t { return i < bytes.size() ? bytes[i] : 0; };
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (size_t d = 0; d < 4; ++d)
      out += i + d <= bytes.size() ? kDigits[three >> (18 - 6 * d) & 63] : '=';
  }
  return out;
}

uint32_t bits_of(float value, DType dtype) {
  if (dtype == DType::kF16) return f16(value).bits;
  return dtype == DType::kBF16 ? bf16(value).bits : std::bit_cast<uint32_t>(value);
}

std::vector<uint8_t> bytes_of(std::span<const float> values, const EmbeddingFormat& format) {
  const auto width = static_cast<size_t>(dtype_size(format.dtype));
  std::vector<uint8_t> bytes;
  bytes.reserve(values.size() * width);
  for (const float value : values) {
    const uint32_t bits = bits_of(value, format.dtype);
    for (size_t i = 0; i < width; ++i)
      bytes.push_back(static_cast<uint8_t>(bits >> 8 * (format.big_endian ? width - 1 - i : i)));
  }
  return bytes;
}

}  // namespace

void normalize(std::vector<float>& embedding) {
  double squares = 0;
  for (const float x : embedding) squares += static_cast<double>(x) * static_cast<double>(x);
  const double factor = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& x : embedding) x = static_cast<float>(static_cast<double>(x) * factor);
}

int64_t embeddings_bytes(int64_t texts, int64_t dimensions, bool base64) {
  constexpr int64_t kOfText = 100;
  // "-1.17549435e-38,", or four base64 digits for three bytes.
  const int64_t of_number = int64_t{sizeof(float)} + (base64 ? 6 : 16);
  return texts * (kOfText + dimensions * of_number);
}

std::string embeddings_body(const std::string& model,
                            std::span<const std::vector<float>> embeddings, int64_t prompt_tokens,
                            const EmbeddingFormat& format) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (size_t i = 0; i < embeddings.size(); ++i) {
    json.begin_object().key("object").string("embedding");
    json.key("index").integer(static_cast<int64_t>(i)).key("embedding");
    if (format.base64) {
      json.string(base64_of(bytes_of(embeddings[i], format)));
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
