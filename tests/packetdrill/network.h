// The network that scripts believe in, as the kernel of this namespace has it: the interface tun0
// with the gateway behind it. What is a tun device to packetdrill is an Ethernet interface here,
// for such ones are carried; frames never reach it.
// Owner: none (functions). Thread: any. Source: packetdrill's config.c for the addresses.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>

namespace vireo::packetdrill {

inline constexpr char kInterface[] = "tun0";
inline constexpr uint32_t kMtu = 1500;

/// Makes the interface and its routes. Harmless if they are there.
void make_network();
/// `a` is one of our own addresses from now on: packetdrill draws them at random.
void own_address(const sockaddr* a, socklen_t n);
/// An Ethernet frame to us from the gateway.
std::span<const uint8_t, 14> frame_header(bool v6);

}  // namespace vireo::packetdrill
