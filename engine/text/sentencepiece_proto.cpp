#include "engine/text/sentencepiece_proto.h"

#include <cstdint>
#include <cstring>

#include "engine/core/error.h"

namespace trireme {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;
constexpr uint64_t kCharacterMap = 2, kAddDummyPrefix = 3, kRemoveExtraSpaces = 4,
                   kEscapeSpaces = 5;
constexpr uint64_t kSpaceAsSuffix = 24;

[[noreturn]] void fail(const std::string& name, const char* what) {
  fail_input("cannot load tokenizer ", name, ": it is not a SentencePiece model, or is damaged (",
             what, ")");
}

// Fields of one message, in order.
class FieldReader {
 public:
  FieldReader(std::string_view message, const std::string& name) : rest_(message), name_(name) {}

  uint64_t field = 0;
  uint64_t number = 0;     // of a varint field
  std::string_view bytes;  // of a length-delimited field, or the four bytes of a float

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field = key >> 3;
    number = 0;
    bytes = {};
    switch (key & 7) {
      case 0: number = varint(); break;
      case 1: take(8); break;
      case 2: bytes = take(varint()); break;
      case 5: bytes = take(4); break;
      default: fail(name_, "unknown wire type");
    }
    return true;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail(name_, "unterminated number");
  }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) fail(name_, "truncated");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view rest_;
  const std::string& name_;
};

uint32_t load_u32(std::string_view bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// [uint32 bytes of the trie][trie: uint32 units][replacements, each ended by a NUL]. A unit with
// bit 31 is a leaf whose other bits are an offset into the replacements; any other unit i leads to
// the units i ^ offset ^ byte (Yata's XOR-compacted double array).
void check_character_map(std::string_view map, const std::string& name) {
  if (map.empty()) return;
  if (map.size() < 4) fail(name, "character map");
  const size_t trie_bytes = load_u32(map, 0);
  if (trie_bytes > map.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) {
    fail(name, "size of the character map");
  }
  const std::string_view trie = map.substr(4, trie_bytes);
  const std::string_view replacements = map.substr(4 + trie_bytes);
  if (replacements.empty() || replacements.back() != '\0') fail(name, "end of the character map");
  const size_t units = trie_bytes / 4;
  for (size_t i = 0; i < units; ++i) {
    const uint32_t unit = load_u32(trie, i * 4);
    if ((unit >> 31) != 0) {
      if ((unit & 0x7fffffffu) >= replacements.size()) fail(name, "value in the character map");
      continue;
    }
    const size_t offset = size_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
    if (((i ^ offset) | 0xff) >= units) fail(name, "step in the character map");
  }
}

struct NormalizerSpec {  // with the proto's defaults
  bool maps_characters = false, adds_dummy_prefix = true, removes_extra_spaces = true;
  bool escapes_spaces = true;
};

void read_normalizer(std::string_view message, const std::string& name,
                     NormalizerSpec& normalizer) {
  for (FieldReader reader(message, name); reader.next();) {
    if (reader.field == kCharacterMap) {
      check_character_map(reader.bytes, name);
      normalizer.maps_characters = !reader.bytes.empty();
    }
    if (reader.field == kAddDummyPrefix) normalizer.adds_dummy_prefix = reader.number != 0;
    if (reader.field == kRemoveExtraSpaces) normalizer.removes_extra_spaces = reader.number != 0;
    if (reader.field == kEscapeSpaces) normalizer.escapes_spaces = reader.number != 0;
  }
}

}  // namespace

SentencePieceFacts check_sentencepiece_model(std::string_view model, const std::string& name) {
  NormalizerSpec normalizer, denormalizer;
  bool space_as_suffix = false;
  for (FieldReader reader(model, name); reader.next();) {
    if (reader.field == kNormalizerSpec) read_normalizer(reader.bytes, name, normalizer);
    if (reader.field == kDenormalizerSpec) read_normalizer(reader.bytes, name, denormalizer);
    if (reader.field != kTrainerSpec) continue;
    for (FieldReader spec(reader.bytes, name); spec.next();) {
      if (spec.field == kSpaceAsSuffix) space_as_suffix = spec.number != 0;
    }
  }
  SentencePieceFacts facts;
  facts.drops_leading_space = normalizer.adds_dummy_prefix || normalizer.removes_extra_spaces;
  facts.drops_leading_spaces = normalizer.removes_extra_spaces;
  facts.keeps_text =
      !normalizer.maps_characters && !normalizer.removes_extra_spaces && !space_as_suffix;
  return facts;
}

namespace {

SentencePieces::Piece read_piece(std::string_view message, const std::string& name) {
  SentencePieces::Piece piece;
  for (FieldReader reader(message, name); reader.next();) {
    if (reader.field == 1) piece.text = reader.bytes;
    if (reader.field == 2 && reader.bytes.size() == sizeof(float)) {
      float score = 0;
      std::memcpy(&score, reader.bytes.data(), sizeof(score));
      piece.score = static_cast<double>(score);
    }
    if (reader.field == 3) piece.type = static_cast<int64_t>(reader.number);
  }
  return piece;
}

// Field numbers of the trainer spec.
enum TrainerField : uint64_t {
  kModelType = 3,
  kByteFallback = 35,
  kUnkId = 40,
  kBosId,
  kEosId,
  kPadId
};
constexpr uint64_t kPairs = 2;

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}
void put_number(std::string& out, uint64_t field, int64_t value) {
  put_varint(out, field << 3);
  put_varint(out, static_cast<uint64_t>(value));
}
void put_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

}  // namespace

SentencePieces parse_sentence_pieces(std::string_view model, const std::string& name) {
  check_sentencepiece_model(model, name);
  SentencePieces parts;
  parts.pairs = false;  // the proto's default is unigram
  parts.unknown = 0;
  parts.bos = 1;
  parts.eos = 2;
  NormalizerSpec normalizer;
  for (FieldReader reader(model, name); reader.next();) {
    if (reader.field == 1) parts.pieces.push_back(read_piece(reader.bytes, name));
    if (reader.field == kNormalizerSpec) read_normalizer(reader.bytes, name, normalizer);
    if (reader.field != kTrainerSpec) continue;
    for (FieldReader spec(reader.bytes, name); spec.next();) {
      const auto number = static_cast<int64_t>(spec.number);
      if (spec.field == kModelType) parts.pairs = spec.number == kPairs;
      if (spec.field == kSpaceAsSuffix) parts.space_as_suffix = spec.number != 0;
      if (spec.field == kByteFallback) parts.byte_fallback = spec.number != 0;
      if (spec.field == kUnkId) parts.unknown = number;
      if (spec.field == kBosId) parts.bos = number;
      if (spec.field == kEosId) parts.eos = number;
    }
  }
  parts.adds_leading_space = normalizer.adds_dummy_prefix;
  parts.removes_extra_spaces = normalizer.removes_extra_spaces;
  parts.maps_characters = normalizer.maps_characters;
  parts.escapes_spaces = normalizer.escapes_spaces;
  return parts;
}

std::string serialize_sentence_pieces(const SentencePieces& parts) {
  std::string model, trainer, normalizer;
  bool bytes = false;
  for (const SentencePieces::Piece& piece : parts.pieces) {
    std::string message;
    put_bytes(message, 1, piece.text);
    const auto score = static_cast<float>(piece.score);
    put_varint(message, 2 << 3 | 5);
    message.append(reinterpret_cast<const char*>(&score), sizeof(score));
    put_number(message, 3, piece.type);
    put_bytes(model, 1, message);
    bytes = bytes || piece.type == SentencePieces::kByte;
  }
  put_number(trainer, kModelType, parts.pairs ? 2 : 1);
  put_number(trainer, kByteFallback, bytes ? 1 : 0);
  if (parts.space_as_suffix) put_number(trainer, kSpaceAsSuffix, 1);
  put_number(trainer, kUnkId, parts.unknown);
  put_number(trainer, kBosId, parts.bos);
  put_number(trainer, kEosId, parts.eos);
  put_number(trainer, kPadId, -1);
  put_bytes(normalizer, 1, "identity");
  put_number(normalizer, kAddDummyPrefix, parts.adds_leading_space ? 1 : 0);
  put_number(normalizer, kRemoveExtraSpaces, parts.removes_extra_spaces ? 1 : 0);
  put_number(normalizer, kEscapeSpaces, parts.escapes_spaces ? 1 : 0);
  put_bytes(model, kTrainerSpec, trainer);
  put_bytes(model, kNormalizerSpec, normalizer);
  return model;
}

std::string with_leading_space(std::string_view model, bool adds) {
  std::string normalizer, out(model);
  put_number(normalizer, kAddDummyPrefix, adds ? 1 : 0);
  put_bytes(out, kNormalizerSpec, normalizer);
  return out;
}

}  // namespace trireme
