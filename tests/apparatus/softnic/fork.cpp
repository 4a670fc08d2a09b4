#include "tests/apparatus/softnic/fork.h"

#include <pthread.h>

#include "core/own_fds.h"

namespace vireo::softnic {
namespace {

void begin_anew() {
  close_own_fds();
  forget_devices();
  forget_doorbells();
  forget_driving();
  forget_clock();
}

}  // namespace

void forget_in_children() { pthread_atfork(nullptr, nullptr, begin_anew); }

}  // namespace vireo::softnic
