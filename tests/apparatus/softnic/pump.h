// Who makes the device work where the program calls nobody: rings that mlx5dv_init_obj(3) gave away
// are only written to. A watched doorbell (doorbell_page.h) is a call all the same; a thread brings
// the frames that arrive, and looks for what is not told of; or, by hand, whoever calls pump() does
// all.
// Owner: process. Thread: any.
#pragma once

namespace vireo::softnic {

/// From now on by hand or by the thread. Set before rings are given away.
void drive(bool by_hand, bool each_doorbell);
void refuse_rings(bool refused);
bool are_rings_refused();
/// One look at every device. @return true: there was something to do.
bool pump();
/// Rings are about to be given away: there is a thread from now on, unless by hand.
struct Driven {
  bool by_hand, each_doorbell;
};
Driven start_driving();

}  // namespace vireo::softnic
