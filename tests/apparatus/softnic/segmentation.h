// TCP segmentation as a NIC does it (IBV_WR_TSO).
// Owner: none. Thread: any. Source: ibv_post_send(3); Linux's tcp_gso_segment for the fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace vireo::softnic {

/// True if `header` is Ethernet, IP and TCP, whole and nothing behind it.
bool can_segment(std::span<const std::byte> header) noexcept;

/// Writes one segment, header and `part` of the payload that starts `at` bytes in, into `to`: IP
/// length and identification (counted by `number`), sequence number, flags (FIN and PSH only on the
/// last, CWR only on the first), checksums. @return bytes written.
size_t write_segment(std::span<std::byte> to, std::span<const std::byte> header,
                     std::span<const std::byte> part, uint32_t at, uint32_t number,
                     bool is_last) noexcept;

}  // namespace vireo::softnic
