#include "dev/xdp/populating.h"

#include <signal.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace vireo::xdp {

Populating::Populating(std::span<std::byte> memory) noexcept : memory_(memory) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's
  is_running_ = pthread_create(&thread_, nullptr, run, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Populating::~Populating() {
  if (is_running_) pthread_join(thread_, nullptr);
}

void* Populating::run(void* self) noexcept {
  const auto memory = static_cast<Populating*>(self)->memory_;
  madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE);
  return nullptr;
}

}  // namespace vireo::xdp
