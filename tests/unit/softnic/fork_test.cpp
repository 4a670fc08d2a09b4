// A device ends with the process that opened it, whatever children it left.
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"

namespace softnic_test {
namespace {

int descriptors() {
  int n = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

TEST(Fork, TheChildHoldsNothingOfTheDevice) {
  const int before = descriptors();
  const End end{0, {.by_hand = false}};
  ASSERT_GT(descriptors(), before);
  const pid_t child = fork();
  if (child == 0) _exit(descriptors() > before ? 1 : 0);  // fewer: of ports that others used
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace softnic_test
