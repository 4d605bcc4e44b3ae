#include <elf.h>
#include <link.h>

#include <cstring>
#include <filesystem>

#include "parallel/comm/rank_state.h"

namespace trireme {
namespace {

// Finds the note that the linker leaves in the main program; writes its hex digits to `out`.
int find_build_id(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const std::byte*>(info->dlpi_addr + header.p_vaddr);
    const std::byte* end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const std::byte* name = at + sizeof note;
      const std::byte* value = name + round_up(note.n_namesz, 4);
      at = value + round_up(note.n_descsz, 4);
      if (at > end) break;
      const bool gnu = note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0;
      if (!gnu || note.n_type != NT_GNU_BUILD_ID) continue;
      for (uint32_t k = 0; k < note.n_descsz; ++k) {
        constexpr const char* kHex = "0123456789abcdef";
        const auto byte = static_cast<unsigned>(value[k]);
        *static_cast<std::string*>(out) += {kHex[byte >> 4], kHex[byte & 15u]};
      }
    }
  }
  return 1;  // the first object is the main program: stop
}

}  // namespace

std::string executable_build_id() {
  std::string id;
  dl_iterate_phdr(find_build_id, &id);
  if (!id.empty()) return id;
  std::error_code error;
  const auto bytes = std::filesystem::file_size("/proc/self/exe", error);
  return error ? "unknown" : concat(bytes, "-byte executable");
}

}  // namespace trireme
