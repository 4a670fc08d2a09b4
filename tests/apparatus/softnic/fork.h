// fork(2). A device is the kernel's: the child has no part in what its parent opened, and opens it
// anew if it wants one. So it begins without devices, contexts, doorbells and thread; what the
// parent's were lies about unused, for a thread that does not exist here may have left it halfway,
// or locked.
// Owner: process. Thread: any; the handlers below are the only one there is.
#pragma once

namespace vireo::softnic {

/// From now on the child of a fork forgets.
void forget_in_children();

// What it forgets, each in its own file.
void forget_devices();
void forget_doorbells();
void forget_driving();
void forget_clock();

}  // namespace vireo::softnic
