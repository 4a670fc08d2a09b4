// Chooses the device that carries an interface: by VIREO_DEVICE and VIREO_INTERFACES, then by what
// the interface is. The only place that knows every back end; the engine gets it as a function.
// Owner: none. Thread: the function is called by the holder of an engine's lock.
#pragma once

#include "config/settings.h"
#include "core/carriage.h"
#include "dev/opener.h"

namespace vireo {

/// The part of the opener's decision that needs no device: what the settings say of this interface.
Carried<void> may_open(const Settings& settings, const net::Link& link);

/// Sysfs shows an RDMA device beneath the interface, or beneath a member of a bond, which
/// VIREO_DEVICE=auto then prefers.
bool has_rdma(const net::Link& link);

/// A device that these settings may choose can be opened several times by one process: RDMA devices
/// are asked for, or one is beneath an interface here. Not within an engine's lock.
bool may_have_rings(const Settings& settings);

/// The opener for an engine. `settings` must outlive it. Refusals: kDisabled, kInterface (not one
/// of VIREO_INTERFACES, or not a kind that is carried), kDeviceBusy, kRights, kMemory, kDevice.
DeviceOpener device_opener(const Settings& settings);

}  // namespace vireo
