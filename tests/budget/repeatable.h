// Two hosts of which every run does the same, instruction for instruction: joined by a `mem` wire,
// in virtual time, without helper threads, and with the same secrets each time.
//
// What is put in the place of the library's own is the clock (Clock::now() takes its way without a
// time-stamp counter) and getrandom(2); both by the linker's --wrap, see CMakeLists.txt. Neighbours
// are permanent. Owner: the program. Thread: one.
#pragma once

#include "tests/apparatus/mem/mem_link.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {

/// Host 1 (hosts().a) is the link's end A.
MemLink& wire();

/// Virtual time goes on; frames under way arrive.
void pass(Duration d);

/// A turn of the host's engine, as any call that waits would take.
void turn(Host& h);

/// Called once, when a host hands its next frame to its device.
void at_next_frame(void (*call)());

}  // namespace vireo::test
