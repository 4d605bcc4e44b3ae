#include "tests/emulator/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>

#include "tests/emulator/block.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/report.h"

#if TRIREME_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace emulator::detail {
namespace {

constexpr std::size_t kRedZone = 256;
constexpr unsigned char kPattern = 0xa5, kPoison = 0xff;
// Addresses of freed memory stay inaccessible until this many later frees.
constexpr std::size_t kTombstones = 4096;
constexpr std::size_t kDefaultCapacity = std::size_t{16} << 30;
constexpr std::size_t kLarge = std::size_t{2} << 20;  // a large page

// Pages from `start`: the memory, its red zone, unused bytes of the last page.
struct Allocation {
  std::size_t bytes = 0, mapped = 0;
  int device = 0;
  bool freed = false;
};

struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> device;  // by start, including freed ones
  std::map<std::uintptr_t, std::size_t> pinned;
  std::deque<std::uintptr_t> tombstones;
  std::map<int, std::size_t> in_use;  // bytes by device
  std::size_t live = 0, capacity = kDefaultCapacity;
  int opens = 0;
  struct sigaction before {};  // the previous handler of SIGSEGV
  bool handles_faults = false;
};
// Never destroyed: threads and handlers may outlive main.
Memory& memory() {
  static Memory& the = *new Memory;
  return the;
}

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void protect(std::uintptr_t start, std::size_t bytes, int protection) {
  if (mprotect(reinterpret_cast<void*>(start), bytes, protection) != 0)
    die("mprotect of %zu bytes of device memory failed", bytes);
}

// Entry that contains the address, red zone included; call with the lock held.
std::map<std::uintptr_t, Allocation>::iterator find(std::uintptr_t address) {
  auto& device = memory().device;
  auto after = device.upper_bound(address);
  if (after == device.begin()) return device.end();
  auto found = std::prev(after);
  return address < found->first + found->second.mapped ? found : device.end();
}

// Maps pages of this process for reading and writing. Large memory uses large pages where
// available, because opening and closing it costs time per page. nullptr: none left.
void* map_pages(std::size_t bytes) {
  const std::size_t spare = bytes >= kLarge ? kLarge : 0;
  void* pointer = mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pointer == MAP_FAILED) return nullptr;
  if (!spare) return pointer;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::uintptr_t start = rounded(address, kLarge);
  if (start > address) munmap(pointer, start - address);
  if (start < address + spare)
    munmap(reinterpret_cast<void*>(start + bytes), address + spare - start);
  pointer = reinterpret_cast<void*>(start);
  madvise(pointer, bytes, MADV_HUGEPAGE);  // a hint: its failure is harmless
  return pointer;
}

void write_error(const char* text, int length) {
  if (length <= 0) return;
  [[maybe_unused]] const auto written =
      write(STDERR_FILENO, text, static_cast<std::size_t>(length));
}

// Reports whose memory was touched, then passes the fault to the previous (or default) handler.
void on_fault(int, siginfo_t* info, void*) {
  Memory& m = memory();
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  char text[300];
  int length = 0;
  bool locked = false;
  for (int i = 0; i < 1000 && !locked; ++i) {
    locked = m.mutex.try_lock();
    if (!locked) usleep(1000);
  }
  if (auto found = locked ? find(address) : m.device.end(); found != m.device.end()) {
    const char* kernel = running_kernel();
    const char* who = kernel ? kernel : m.opens ? "queued work or the host" : "the host";
    length = std::snprintf(
        text, sizeof(text),
        "emulator: %s touched device memory at 0x%zx, %s 0x%zx with %zu bytes on device %d\n", who,
        static_cast<std::size_t>(address),
        found->second.freed ? "which is freed; it was allocated as" : "allocated as",
        static_cast<std::size_t>(found->first), found->second.bytes, found->second.device);
  } else if (in_stack_guard(info->si_addr)) {
    length = std::snprintf(text, sizeof(text), "emulator: kernel %s: a thread's stack overflowed\n",
                           running_kernel());
  }
  write_error(text, length);
  if (locked) m.mutex.unlock();
  // The faulting instruction runs again, now with the previous handler.
  sigaction(SIGSEGV, &m.before, nullptr);
}

void forget_oldest(Memory& m) {
  if (m.tombstones.size() <= kTombstones) return;
  const std::uintptr_t start = m.tombstones.front();
  m.tombstones.pop_front();
  munmap(reinterpret_cast<void*>(start), m.device[start].mapped);
  m.device.erase(start);
}

// Call with device memory open and the lock held.
void check_red_zone(const char* call, std::uintptr_t start, const Allocation& a) {
  const auto* zone = reinterpret_cast<const unsigned char*>(start + a.bytes);
#if TRIREME_EMULATOR_ASAN
  ASAN_UNPOISON_MEMORY_REGION(zone, kRedZone);
#endif
  for (std::size_t i = 0; i < kRedZone; ++i)
    if (zone[i] != kPattern)
      die("%s: byte %zu behind device memory 0x%zx of %zu bytes was overwritten", call, i,
          static_cast<std::size_t>(start), a.bytes);
#if TRIREME_EMULATOR_ASAN
  ASAN_POISON_MEMORY_REGION(zone, kRedZone);
#endif
}

}  // namespace

void handle_faults() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (m.handles_faults) return;
  m.handles_faults = true;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &m.before);
}

void* allocate_device(int device, std::size_t bytes) {
  handle_faults();
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (bytes > m.capacity || m.in_use[device] + bytes > m.capacity) return nullptr;
  const std::size_t mapped = rounded(bytes + kRedZone, page());
  void* pointer = map_pages(mapped);
  if (!pointer) return nullptr;
  auto* first = static_cast<unsigned char*>(pointer);
  std::memset(first, kPoison, bytes);
  std::memset(first + bytes, kPattern, kRedZone);
#if TRIREME_EMULATOR_ASAN
  ASAN_POISON_MEMORY_REGION(first + bytes, kRedZone);
#endif
  const auto start = reinterpret_cast<std::uintptr_t>(pointer);
  if (!m.opens) protect(start, mapped, PROT_NONE);
  m.device[start] = {.bytes = bytes, .mapped = mapped, .device = device, .freed = false};
  m.in_use[device] += bytes;
  ++m.live;
  return pointer;
}

void free_device(const char* call, void* pointer) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto start = reinterpret_cast<std::uintptr_t>(pointer);
  const auto found = m.device.find(start);
  if (found == m.device.end()) {
    const auto inside = find(start);
    die("%s: 0x%zx is not %s", call, static_cast<std::size_t>(start),
        inside == m.device.end() ? "device memory" : "the start of an allocation");
  }
  Allocation& a = found->second;
  if (a.freed)
    die("%s: 0x%zx of %zu bytes was freed before", call, static_cast<std::size_t>(start), a.bytes);
  protect(start, a.mapped, PROT_READ);
  check_red_zone(call, start, a);
#if TRIREME_EMULATOR_ASAN
  ASAN_UNPOISON_MEMORY_REGION(pointer, a.mapped);
#endif
  // Returns the pages to the system; the addresses stay reserved and inaccessible.
  if (mmap(pointer, a.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
           -1, 0) == MAP_FAILED)
    die("%s: mmap failed", call);
  a.freed = true;
  m.in_use[a.device] -= a.bytes;
  --m.live;
  m.tombstones.push_back(start);
  forget_oldest(m);
}

void* allocate_pinned(std::size_t bytes) {
  const std::size_t unit = bytes < kLarge ? 256 : kLarge;
  const std::size_t size = rounded(bytes ? bytes : 1, unit);
  void* pointer = std::aligned_alloc(unit, size);
  if (!pointer) return nullptr;
  if (unit == kLarge) madvise(pointer, size, MADV_HUGEPAGE);
  std::memset(pointer, kPoison, bytes);
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.pinned[reinterpret_cast<std::uintptr_t>(pointer)] = bytes;
  return pointer;
}

bool free_pinned(void* pointer) {
  Memory& m = memory();
  {
    const std::lock_guard lock(m.mutex);
    if (!m.pinned.erase(reinterpret_cast<std::uintptr_t>(pointer))) return false;
  }
  std::free(pointer);
  return true;
}

Region find_region(const void* pointer) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (const auto found = find(address); found != m.device.end()) {
    const Allocation& a = found->second;
    return {a.freed ? Where::kFreed : Where::kDevice, found->first, a.bytes, a.device};
  }
  auto after = m.pinned.upper_bound(address);
  if (after == m.pinned.begin()) return {};
  const auto& [start, bytes] = *std::prev(after);
  if (address >= start + bytes) return {};
  return {Where::kPinned, start, bytes, 0};
}

void require_device(const char* call, const void* pointer, std::size_t bytes, int device) {
  const Region r = find_region(pointer);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto shown = static_cast<std::size_t>(address);
  if (r.where == Where::kFreed) die("%s: 0x%zx is freed device memory", call, shown);
  if (r.where != Where::kDevice) die("%s: 0x%zx is host memory, not device memory", call, shown);
  if (r.device != device)
    die("%s: 0x%zx is memory of device %d, not of device %d", call, shown, r.device, device);
  if (address - r.start > r.bytes || bytes > r.bytes - (address - r.start))
    die("%s: %zu bytes at 0x%zx end outside the device memory 0x%zx of %zu bytes", call, bytes,
        shown, static_cast<std::size_t>(r.start), r.bytes);
}

std::size_t device_bytes_in_use(int device) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.in_use[device];
}
std::size_t live_allocations() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.live;
}
void set_capacity(std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.capacity = bytes ? bytes : kDefaultCapacity;
}
std::size_t capacity() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.capacity;
}

void check_red_zones(const char* call, int device) {
  open_device_memory();
  {
    Memory& m = memory();
    const std::lock_guard lock(m.mutex);
    for (const auto& [start, a] : m.device)
      if (!a.freed && a.device == device) check_red_zone(call, start, a);
  }
  close_device_memory();
}

void open_device_memory() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (m.opens++) return;
  for (const auto& [start, a] : m.device)
    if (!a.freed) protect(start, a.mapped, PROT_READ | PROT_WRITE);
}

void close_device_memory() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (--m.opens) return;
  for (const auto& [start, a] : m.device)
    if (!a.freed) protect(start, a.mapped, PROT_NONE);
}

bool is_mapped(std::uintptr_t address) {
  const std::uintptr_t start = address / page() * page();
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(start), 1, &resident) == 0;
}

}  // namespace emulator::detail
