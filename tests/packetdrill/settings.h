// The settings of the network namespace that a script's commands may have changed, read when a
// socket or connection is made. Owner: none (functions). Thread: any. Source: ip-sysctl.
#pragma once

#include <memory>

#include "tests/packetdrill/ip.h"
#include "tests/script/host.h"

namespace vireo::packetdrill {

/// A host for one peer, as the settings of now say.
std::unique_ptr<script::Host> make_host(Seq32 iss);
/// What net.ipv4.tcp_fastopen allows now.
void read_fast_open(script::Host& host);
/// Cookies that we give to `client` and take from it: the first is the newest key's.
std::vector<std::vector<uint8_t>> fast_open_cookies(const Place& server, const Place& client);
/// As it gives the cookies of a key (TCP_FASTOPEN_KEY: one or two of 16 bytes).
std::vector<std::vector<uint8_t>> fast_open_cookies(std::span<const uint8_t> keys,
                                                    const Place& server, const Place& client);

}  // namespace vireo::packetdrill
