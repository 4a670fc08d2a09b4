// Chooses the device that carries an interface: by VIREO_DEVICE and VIREO_INTERFACES, then by the
// kind of interface. The only place that knows every back end; the engine gets it as a function.
// Owner: none. Thread: the function is called by the holder of an engine's lock.
#pragma once

#include "config/settings.h"
#include "core/carriage.h"
#include "dev/device_group.h"
#include "dev/opener.h"

namespace vireo {

/// The part of the opener's decision that needs no device: whether the settings allow this
/// interface.
Carried<void> may_open(const Settings& settings, const net::Link& link);

/// True if sysfs shows an RDMA device for the interface or for a member of a bond;
/// VIREO_DEVICE=auto then prefers it.
bool has_rdma(const net::Link& link);

/// True if one process can open the chosen device several times: an RDMA device is configured, or
/// with `auto` an interface of this host has one. Do not call with an engine's lock held.
bool may_have_rings(const Settings& settings);

/// The opener for an engine. `settings` must outlive it. Refusals: kDisabled, kInterface (not in
/// VIREO_INTERFACES, or of a kind that is not carried), kDeviceBusy, kRights, kMemory, kDevice.
DeviceOpener device_opener(const Settings& settings);

/// How a process enters the group that shares its interfaces; empty: the settings name devices that
/// are not shared, VIREO_GROUP_BYTES=0, or the kernel is older than Linux 6.4.
GroupOpener group_opener(const Settings& settings);

}  // namespace vireo
