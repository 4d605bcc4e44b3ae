#include "engine/io/mapping_guard.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

#include "engine/io/input_file.h"

namespace trireme {
namespace {

// Read by a signal handler: an entry is never freed, but reused for another mapping.
struct GuardedMapping {
  std::atomic<uintptr_t> begin{0}, end{0};  // 0: no mapping
  std::atomic<bool> torn{false};
  GuardedMapping* next = nullptr;
  int descriptor = -1;  // of the file; guarded by the mutex, like path
  std::string path;

  bool holds(uintptr_t address) const { return begin <= address && address < end; }
};

std::atomic<GuardedMapping*> g_guarded_mappings{nullptr};
std::mutex g_guard_mutex;
uintptr_t g_guard_page = 4096;
struct sigaction g_bus_error_before;

uintptr_t address_of_bytes(std::span<const std::byte> bytes) {
  return reinterpret_cast<uintptr_t>(bytes.data());
}

GuardedMapping* find_guarded(uintptr_t address) {
  for (GuardedMapping* one = g_guarded_mappings; one != nullptr; one = one->next)
    if (one->holds(address)) return one;
  return nullptr;
}

void on_bus_error(int, siginfo_t* info, void*) {
  const int error_number = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (GuardedMapping* mapping = find_guarded(address); mapping != nullptr) {
    const uintptr_t page = address & ~(g_guard_page - 1);
    void* at = reinterpret_cast<void*>(page);
    mapping->torn = true;
    if (mmap(at, mapping->end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        at) {
      errno = error_number;
      return;
    }
  }
  // Not a guarded mapping: the access is repeated with the previous handler.
  sigaction(SIGBUS, &g_bus_error_before, nullptr);
}

void install_guard() {
  g_guard_page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigaction(SIGBUS, &action, &g_bus_error_before);
}

}  // namespace

void guard_mapping(std::span<const std::byte> mapping, int descriptor, const std::string& path) {
  static std::once_flag installed;
  std::call_once(installed, install_guard);
  const std::lock_guard lock(g_guard_mutex);
  GuardedMapping* entry = g_guarded_mappings;
  while (entry != nullptr && entry->end != 0) entry = entry->next;
  if (entry == nullptr) {
    entry = new GuardedMapping;
    entry->next = g_guarded_mappings;
    g_guarded_mappings = entry;
  }
  entry->path = path;
  entry->descriptor = descriptor;
  entry->torn = false;
  entry->begin = address_of_bytes(mapping);
  entry->end = address_of_bytes(mapping) + mapping.size();
}

void release_mapping(std::span<const std::byte> mapping) noexcept {
  const std::lock_guard lock(g_guard_mutex);
  GuardedMapping* entry = find_guarded(address_of_bytes(mapping));
  if (entry == nullptr) return;
  entry->end = 0;
  entry->begin = 0;
  ::close(entry->descriptor);
}

void check_mapping(std::span<const std::byte> part) {
  if (part.empty()) return;
  const std::lock_guard lock(g_guard_mutex);
  const GuardedMapping* entry = find_guarded(address_of_bytes(part));
  if (entry == nullptr) return;
  const auto bytes = static_cast<int64_t>(entry->end - entry->begin);
  struct stat info {};
  // Within the last page of the truncated file reads give zeros without a signal.
  if (!entry->torn && ::fstat(entry->descriptor, &info) == 0 && info.st_size >= bytes) return;
  fail_shrunk(entry->path, bytes);
}

}  // namespace trireme
