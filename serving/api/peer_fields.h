// Request fields of OpenAI, vLLM, SGLang, llama.cpp and Ollama at the endpoints that are served
// here: one row a field. The field tables of the endpoints are completed from it, so that a field
// that another server documents is used, known to have no effect, or refused by its name. A field
// in no table is ignored.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme {

enum class PeerEffect {
  kUsed,      // `words` names the field that it is another name of, or is empty
  kNoEffect,  // accepted with any value; `words` says why
  kRefused,   // 501 unless its value is one of `nothing`; `words` is the way out
};

struct PeerField {
  const char* name;
  const char* endpoints;  // letters of kPeerEndpoints
  const char* peers;      // letters of kPeers: those that document it
  PeerEffect effect;
  const char* words = "";
  const char* nothing = "";  // JSON values that are read as absent, with spaces between them
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
// The values of PeerField::nothing.
std::vector<std::string> values_of(const char* nothing);

}  // namespace trireme
