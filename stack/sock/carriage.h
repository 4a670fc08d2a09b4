// Whether a socket is carried, as far as no device is needed to decide, and how the decision is
// reported to vireo-stat. Owner: none (functions). Thread: any; locks are named at each.
#pragma once

#include "core/address.h"
#include "core/carriage.h"
#include "core/stats_layout.h"
#include "stack/sock/file.h"
#include "stack/sock/stack.h"

namespace vireo {

/// The part of the decision that needs no device: settings, options, rules, own addresses.
Carried<void> may_carry(Stack& stack, Role role, Forced forced, const Endpoint& local,
                        const Endpoint& remote);
/// The refusal for `forced`. `by`: the place to report, unless an option is the reason.
Refusal refusal_of(Forced forced, const char* by) noexcept;
/// Records the decision in the socket's slot and in the process's counters.
void record_carried(File& f, const Endpoint& local, const Endpoint& remote);
void record_kernel(File& f, const Refusal& why);
void record_address(SocketStats& s, const Endpoint& local, const Endpoint& remote);

}  // namespace vireo
