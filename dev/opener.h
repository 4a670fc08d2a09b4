// The function with which an engine opens the device of an interface without knowing any back end;
// dev/registry.h makes it. Owner: none. Thread: called by the holder of an engine's lock.
#pragma once

#include <functional>
#include <memory>

#include "core/carriage.h"
#include "dev/device.h"

namespace vireo {

class Arena;
namespace net {
struct Link;
}

using DeviceOpener = std::function<Carried<std::unique_ptr<Device>>(const net::Link&, Arena&)>;

}  // namespace vireo
