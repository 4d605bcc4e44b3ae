#include "tests/cuda/kernel_coverage.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <sstream>

#include "engine/core/error.h"
#include "tests/emulator/kernels.h"
#include "tests/support/source_folder.h"

namespace trireme::test {
namespace {

std::string content(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Files that define a kernel, by kernel name.
std::map<std::string, std::set<std::string>> kernels_of_sources() {
  std::map<std::string, std::set<std::string>> files;
  const std::regex definition(
      R"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\()");
  for (const char* folder : {"engine", "parallel", "optim"}) {
    const auto path = std::filesystem::path(test::source_folder()) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.path().extension() != ".cu" && entry.path().extension() != ".h") continue;
      const std::string text = content(entry.path());
      for (std::sregex_iterator i(text.begin(), text.end(), definition), end; i != end; ++i)
        files[(*i)[1]].insert(entry.path().filename().string());
    }
  }
  return files;
}

struct Function {
  std::string file = {};  // of a local function: its source
  std::string symbol = {};
  uintptr_t address = 0;  // in the file, without the load address
};

std::vector<Function> functions_of_this_program() {
  const std::string image = content("/proc/self/exe");
  const auto at = [&]<class T>(uint64_t offset, T) {
    TRIREME_CHECK(offset + sizeof(T) <= image.size());
    T value;
    std::memcpy(&value, image.data() + offset, sizeof(T));
    return value;
  };
  const auto header = at(0, Elf64_Ehdr{});
  const auto section = [&](uint64_t i) {
    return at(header.e_shoff + i * header.e_shentsize, Elf64_Shdr{});
  };
  std::vector<Function> functions;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const uint64_t names = section(table.sh_link).sh_offset;
    std::string file;
    for (uint64_t offset = 0; offset < table.sh_size; offset += sizeof(Elf64_Sym)) {
      const auto symbol = at(table.sh_offset + offset, Elf64_Sym{});
      const std::string name = image.c_str() + names + symbol.st_name;
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_FILE) file = name;
      if (type != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
      const bool local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
      functions.push_back({local ? file : "", name, symbol.st_value});
    }
  }
  return functions;
}

uintptr_t load_address() {
  uintptr_t base = 0;  // the program is the first entry
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uintptr_t*>(out) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : symbol;
}

}  // namespace

KernelCoverage kernel_coverage() {
  const auto sources = kernels_of_sources();
  std::set<uintptr_t> launched;
  for (const void* function : emulator::launched_kernels())
    launched.insert(reinterpret_cast<uintptr_t>(function) - load_address());
  KernelCoverage out;
  // Functions named like a kernel, but not what is local to one (whose name starts otherwise).
  const std::regex kernel(R"(^(?:void )?trireme::(?:(?:\w+|\(anonymous namespace\))::)*(\w+)[<(])");
  for (const Function& f : functions_of_this_program()) {
    const bool known = launched.contains(f.address);
    if (f.symbol.find("_kernel") == std::string::npos || f.symbol.starts_with("_ZZ") ||
        f.symbol.find('.') != std::string::npos)
      continue;
    std::smatch match;
    const std::string name = demangled(f.symbol);
    if (!std::regex_search(name, match, kernel)) continue;
    const auto found = sources.find(match[1]);
    if (found == sources.end()) continue;
    // A wrapper has its source's name plus .cpp; a header's kernel is in any source that includes
    // it.
    const std::string file = f.file.substr(0, f.file.rfind(".cpp"));
    const auto home = found->second.contains(file)
                          ? found->second.find(file)
                          : std::ranges::find_if(found->second, [](const std::string& source) {
                              return source.ends_with(".h");
                            });
    TRIREME_CHECK(home != found->second.end(), name, " in ", f.file, " is in no source");
    bool& ran = out.kernels[concat(*home, " ", found->first)];
    ran = ran || known;
    ++out.instances;
    out.launched += known;
    if (!known) out.idle.push_back(concat(file, ": ", name));
  }
  for (const auto& [name, files] : sources)
    for (const std::string& file : files) out.kernels.try_emplace(concat(file, " ", name), false);
  return out;
}

}  // namespace trireme::test
