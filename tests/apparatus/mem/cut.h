// TCP segmentation as a device does it (TxFrame::mss): the frame that was asked for, as the frames
// that go on the wire. Owner: none. Thread: any.
// Source: dev/device.h TxFrame; RFC 791 §3.1, RFC 8200 §3, RFC 9293 §3.1 for the fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vireo {

/// `head` is Ethernet (with tags or not), IPv4 or IPv6 without extension headers, and TCP; nothing
/// lies behind it.
std::vector<std::vector<std::byte>> cut(std::span<const std::byte> head,
                                        std::span<const std::byte> payload, uint16_t mss);

}  // namespace vireo
