// Peer fields: the request fields that OpenAI, vLLM, SGLang, llama.cpp and Ollama document for the
// endpoints served here, one row per field and group of endpoints. They complete the endpoints'
// field tables. A peer field is used, accepted without effect, or rejected by name. A field in no
// table is ignored, unless it looks like a constraint (constraint_fields.h).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme {

enum class PeerEffect {
  kUsed,      // `words`: the field that this is another name of; empty: it has its own row
  kNoEffect,  // accepted with any value; `words`: the reason
  kRefused,   // 501 unless its value is in `nothing`; `words`: the way out
};

struct PeerField {
  const char* name;
  const char* endpoints;  // letters of kPeerEndpoints
  const char* peers;      // letters of kPeers: the servers that document it
  PeerEffect effect;
  const char* words = "";
  const char* nothing = "";  // JSON values read as absent, separated by spaces
};

struct FieldLetter {
  char letter;
  const char* meaning;
};
inline constexpr FieldLetter kPeerEndpoints[] = {{'c', "/v1/completions"},
                                                 {'h', "/v1/chat/completions"},
                                                 {'e', "/v1/embeddings"},
                                                 {'t', "/tokenize"},
                                                 {'d', "/detokenize"},
                                                 {'l', "/v1/load_lora_adapter"},
                                                 {'u', "/v1/unload_lora_adapter"}};
inline constexpr FieldLetter kPeers[] = {
    {'O', "OpenAI"}, {'V', "vLLM"}, {'S', "SGLang"}, {'L', "llama.cpp"}, {'A', "Ollama"}};

std::span<const PeerField> peer_fields();
// Values of PeerField::nothing, each as JSON.
std::vector<std::string> values_of(const char* nothing);

}  // namespace trireme
