#include "engine/core/thread_name.h"

#include <pthread.h>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr size_t kMaxBytes = 15;

}  // namespace

void name_thread(std::string_view name) {
  const std::string kept(name.substr(0, kMaxBytes));
  pthread_setname_np(pthread_self(), kept.c_str());  // a thread without a name works as well
}

void name_thread(std::string_view name, size_t number) { name_thread(concat(name, "-", number)); }

}  // namespace trireme
