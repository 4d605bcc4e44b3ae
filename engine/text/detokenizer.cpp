#include "engine/text/detokenizer.h"

#include "engine/core/utf8.h"
#include "engine/text/tokenizer.h"

namespace trireme {

void ByteDetokenizer::push(int32_t id, bool shown, DetokenizedText& out) {
  const bool control = tokenizer_.is_control(id);
  if (shown && control) pending_ += tokenizer_.token(id);
  if (shown && !control) tokenizer_.append_bytes(id, pending_);
  const std::string text = take_complete_utf8(pending_, Utf8Repair::kMaximalPart);
  out.text += text;
  out.shares.push_back(text.size());
}

void ByteDetokenizer::finish(DetokenizedText& out) {
  out.text += repaired_utf8(std::move(pending_), Utf8Repair::kMaximalPart);
  pending_.clear();
}

}  // namespace trireme
