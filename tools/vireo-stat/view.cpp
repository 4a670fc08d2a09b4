#include "tools/vireo-stat/view.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/stats_json.h"

namespace vireo {
namespace {

constexpr size_t kRxPackets = counter_index(kSocketCounters, "rx_packets");
constexpr size_t kRxBytes = counter_index(kSocketCounters, "rx_bytes");
constexpr size_t kTxPackets = counter_index(kSocketCounters, "tx_packets");
constexpr size_t kTxBytes = counter_index(kSocketCounters, "tx_bytes");
constexpr size_t kRxDrops = counter_index(kSocketCounters, "rx_drops");
constexpr size_t kRetransmits = counter_index(kSocketCounters, "retransmits");
constexpr size_t kOsRxPackets = counter_index(kSocketCounters, "os_rx_packets");
constexpr size_t kOsTxPackets = counter_index(kSocketCounters, "os_tx_packets");
constexpr size_t kEngineRx = counter_index(kEngineCounters, "rx_packets");
constexpr size_t kEngineTx = counter_index(kEngineCounters, "tx_packets");
constexpr size_t kRingFull = counter_index(kEngineCounters, "rx_lost_ring_full");
constexpr size_t kNoFrame = counter_index(kEngineCounters, "rx_lost_no_frame");
constexpr size_t kRxRefused = counter_index(kEngineCounters, "rx_refused");
constexpr size_t kTxRefused = counter_index(kEngineCounters, "tx_refused");
constexpr size_t kRestarts = counter_index(kEngineCounters, "queue_restarts");

/// The change per second since an earlier reading; or the total.
struct Rate {
  Duration since;
  bool is_rate = false;

  std::string operator()(uint64_t now, uint64_t before) const {
    if (!is_rate) return short_number(now);
    const uint64_t moved = now >= before ? now - before : now;  // else the slot was reused
    return short_number(static_cast<uint64_t>(
        static_cast<double>(moved) * 1e9 / static_cast<double>(std::max<int64_t>(since.ns(), 1))));
  }
};

bool same_socket(const SocketReading& a, const SocketReading& b) {
  return a.fd == b.fd && a.tcp == b.tcp && a.local == b.local && a.remote == b.remote;
}

SocketCounts counts_before(const SocketReading& s, const ProcessReading* before) {
  if (before != nullptr && !s.closed)
    for (const SocketReading& b : before->sockets)
      if (!b.closed && same_socket(s, b)) return b.counts;
  return {};
}

std::string proto_of(const SocketReading& s) {
  return fmt::format("{}{}", s.tcp ? "tcp" : "udp", s.v6 ? "6" : "");
}

std::string fd_of(const SocketReading& s) { return s.fd < 0 ? "-" : fmt::format("{}", s.fd); }

std::string or_dash(std::string text) { return text.empty() ? "-" : text; }

std::string carried_view(const ProcessReading& p, const ProcessReading* before, const Rate& rate,
                         bool closed) {
  const std::string per = rate.is_rate ? "/s" : "";
  std::vector<std::vector<std::string>> rows{{">FD", "PROTO", "STATE", "LOCAL", "REMOTE",
                                              ">RX-PKT" + per, ">RX-BYTE" + per, ">TX-PKT" + per,
                                              ">TX-BYTE" + per, ">DROPS", ">RETRANS"}};
  for (const SocketReading& s : p.sockets) {
    if (!s.is_carried() || s.closed != closed) continue;
    const SocketCounts old = counts_before(s, before);
    const auto cell = [&](size_t i) { return rate(s.counts[i], old[i]); };
    rows.push_back({fd_of(s), proto_of(s), or_dash(std::string(s.state())),
                    or_dash(endpoint_text(s.local, s.v6)), or_dash(endpoint_text(s.remote, s.v6)),
                    cell(kRxPackets), cell(kRxBytes), cell(kTxPackets), cell(kTxBytes),
                    short_number(s.counts[kRxDrops]), short_number(s.counts[kRetransmits])});
  }
  return rows.size() == 1 ? "" : columns(rows, "    ");
}

std::string kernel_view(const ProcessReading& p, bool closed) {
  std::vector<std::vector<std::string>> rows{
      {">FD", "PROTO", "LOCAL", "REMOTE", ">RX-CALLS", ">TX-CALLS", "REASON", "DETAIL"}};
  for (const SocketReading& s : p.sockets) {
    if (s.is_carried() || s.closed != closed) continue;
    std::string detail = s.detail;
    if (s.err != 0) detail += fmt::format("{}errno {}", detail.empty() ? "" : ": ", s.err);
    rows.push_back({fd_of(s), proto_of(s), or_dash(endpoint_text(s.local, s.v6)),
                    or_dash(endpoint_text(s.remote, s.v6)), short_number(s.counts[kOsRxPackets]),
                    short_number(s.counts[kOsTxPackets]), std::string(carriage_name(s.carriage)),
                    detail});
  }
  return rows.size() == 1 ? "" : columns(rows, "    ");
}

/// Explains each name in the table, once.
std::string meanings(const ProcessReading& p, bool closed) {
  std::string out;
  for (size_t i = 0; i < static_cast<size_t>(Carriage::kCount); ++i) {
    const auto c = static_cast<Carriage>(i);
    const bool shown =
        c != Carriage::kCarried && std::ranges::any_of(p.sockets, [&](const SocketReading& s) {
          return s.carriage == c && s.closed == closed;
        });
    if (shown) out += fmt::format("    {}: {}\n", carriage_name(c), carriage_text(c));
  }
  return out;
}

std::string interfaces_of(const ProcessReading& p) {
  std::string out;
  for (const PortReading& port : p.ports)
    out += fmt::format("{}{} ({}, {} queue{})", out.empty() ? "" : ", ", port.name, port.mode,
                       port.queues, port.queues == 1 ? "" : "s");
  return out.empty() ? "none open" : out;
}

/// Frames lost between the wire and Vireo since the start, and remedies; empty if none.
std::string losses_view(const ProcessReading& p) {
  std::string out;
  if (const uint64_t late = p.engine[kRingFull] + p.engine[kNoFrame]; late != 0)
    out += fmt::format(
        "  lost: {} frames came while the receive ring was full: the program polls too seldom; a "
        "larger VIREO_XDP_RING helps against bursts\n",
        late);
  if (const uint64_t refused = p.engine[kRxRefused] + p.engine[kTxRefused]; refused != 0)
    out += fmt::format("  refused by the device: {} frames: please report it\n", refused);
  if (const uint64_t restarts = p.engine[kRestarts]; restarts != 0)
    out += fmt::format(
        "  queues begun anew after an error of the device: {} times; what they held then was "
        "lost\n",
        restarts);
  return out;
}

/// Empty if there is only one ring.
std::string rings_view(const ProcessReading& p, const ProcessReading* before, const Rate& rate) {
  if (p.rings.size() < 2) return {};
  std::vector<std::vector<std::string>> rows{{">RING", ">SOCKETS", ">RX-PKT", ">TX-PKT"}};
  for (size_t i = 0; i < p.rings.size(); ++i) {
    const auto sockets = std::ranges::count_if(p.sockets, [&](const SocketReading& s) {
      return s.is_carried() && !s.closed && s.ring == i;
    });
    const auto count = [&](size_t counter) {
      const bool was = before != nullptr && i < before->rings.size();
      return rate(p.rings[i][counter], was ? before->rings[i][counter] : 0);
    };
    rows.push_back(
        {fmt::format("{}", i), fmt::format("{}", sockets), count(kEngineRx), count(kEngineTx)});
  }
  return "  rings\n" + columns(rows, "    ");
}

/// Frames of the packet memory that processes share; nothing for a process alone.
std::string group_view(const ProcessReading& p) {
  constexpr auto kAt = [](std::string_view name) consteval {
    return counter_index(kGroupCounters, name);
  };
  if (p.group[kAt("members")] < 2) return "";
  return fmt::format(
      "  group: {} processes, this is number {}; of {} frames {} its own, {} for receiving, {} "
      "unused, {} of the dead\n",
      p.group[kAt("members")], p.group[kAt("slot")], p.group[kAt("frames")], p.group[kAt("own")],
      p.group[kAt("queued")], p.group[kAt("unused")], p.group[kAt("left")]);
}

std::string engine_view(const ProcessReading& p, const ProcessReading* before, const Rate& rate) {
  std::string out = rate.is_rate ? "  engine (a second; pool_*: now)\n" : "  engine\n";
  std::vector<std::vector<std::string>> rows{{"", ">"}};
  for (size_t i = 0; i < kEngineCounters.size(); ++i) {
    const bool level =
        kEngineCounters[i].name.starts_with("pool_") && kEngineCounters[i].name != "pool_empty";
    rows.push_back({std::string(kEngineCounters[i].name),
                    level          ? fmt::format("{}", p.engine[i])
                    : rate.is_rate ? rate(p.engine[i], before != nullptr ? before->engine[i] : 0)
                                   : fmt::format("{}", p.engine[i])});
  }
  const std::string table = columns(rows, "    ");
  return out + table.substr(table.find('\n') + 1);
}

std::string closed_view(const ProcessReading& p) {
  std::vector<std::vector<std::string>> rows{
      {"LAST DECISION", ">SOCKETS", ">RX-PKT", ">RX-BYTE", ">TX-PKT", ">TX-BYTE", ">RETRANS"}};
  for (size_t i = 0; i < p.closed.size(); ++i) {
    const ClosedReading& c = p.closed[i];
    if (c.sockets == 0) continue;
    rows.push_back({std::string(carriage_name(static_cast<Carriage>(i))), short_number(c.sockets),
                    short_number(c.counts[kRxPackets]), short_number(c.counts[kRxBytes]),
                    short_number(c.counts[kTxPackets]), short_number(c.counts[kTxBytes]),
                    short_number(c.counts[kRetransmits])});
  }
  return rows.size() == 1 ? "" : "  closed, in all\n" + columns(rows, "    ");
}

}  // namespace

std::string short_number(uint64_t n) {
  constexpr uint64_t kMax = 99'999;
  uint64_t unit = 1;
  for (const char suffix : {'\0', 'k', 'M', 'G', 'T', 'P'}) {
    const uint64_t shown = n / unit + (n % unit >= unit / 2 && unit > 1 ? 1 : 0);
    if (shown <= kMax)
      return suffix == '\0' ? fmt::format("{}", n) : fmt::format("{}{}", shown, suffix);
    unit *= 1000;
  }
  return fmt::format("{}P", n / 1'000'000'000'000'000);
}

std::string columns(const std::vector<std::vector<std::string>>& rows, std::string_view indent) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.resize(i + 1);
      const bool marked = &row == &rows.front() && row[i].starts_with('>');
      widths[i] = std::max(widths[i], row[i].size() - (marked ? 1 : 0));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line(indent);
    for (size_t i = 0; i < row.size(); ++i) {
      const bool right = i < rows.front().size() && rows.front()[i].starts_with('>');
      std::string_view cell = row[i];
      if (&row == &rows.front() && right) cell.remove_prefix(1);
      line += right ? fmt::format("{:>{}}  ", cell, widths[i])
                    : fmt::format("{:<{}}  ", cell, widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string process_view(const ProcessReading& now, const ProcessReading* before, Duration since,
                         const ViewOptions& options) {
  const Rate rate{since, before != nullptr};
  const auto engine = [&](size_t i) {
    return rate(now.engine[i], before != nullptr ? before->engine[i] : 0);
  };
  const std::string_view per = rate.is_rate ? " a second" : "";
  std::string out = fmt::format("{} (pid {})\n", now.program, now.pid);
  out += fmt::format("  interfaces: {}\n", interfaces_of(now));
  out += fmt::format("  packets{}: {} received, {} sent by Vireo\n", per, engine(kEngineRx),
                     engine(kEngineTx));
  out += rings_view(now, before, rate);
  out += losses_view(now);
  out += group_view(now);
  if (const std::string t = carried_view(now, before, rate, false); !t.empty())
    out += "  carried\n" + t;
  if (const std::string t = kernel_view(now, false); !t.empty())
    out += "  not carried\n" + t + meanings(now, false);
  out += fmt::format("  decisions: {} carried, {} left to the kernel", now.carried, now.kernel);
  const char* sign = ": ";
  for (size_t i = 0; i < now.refused.size(); ++i) {
    if (now.refused[i] == 0) continue;
    out += fmt::format("{}{} {}", sign, carriage_name(static_cast<Carriage>(i)), now.refused[i]);
    sign = ", ";
  }
  out += '\n';
  if (!options.verbose) return out;
  out += closed_view(now);
  if (const std::string t = carried_view(now, nullptr, {}, true) + kernel_view(now, true);
      !t.empty())
    out += "  the newest of them\n" + t;
  return out + engine_view(now, before, rate);
}

std::string reasons_view(std::span<const ProcessReading> all) {
  uint64_t carried = 0;
  std::array<uint64_t, static_cast<size_t>(Carriage::kCount)> refused{};
  for (const ProcessReading& p : all) {
    carried += p.carried;
    for (size_t i = 0; i < refused.size(); ++i) refused[i] += p.refused[i];
  }
  std::vector<std::vector<std::string>> rows{{">COUNT", "REASON", "MEANING"}};
  rows.push_back(
      {fmt::format("{}", carried), "carried", std::string(carriage_text(Carriage::kCarried))});
  for (size_t i = 0; i < refused.size(); ++i)
    if (refused[i] != 0)
      rows.push_back({fmt::format("{}", refused[i]),
                      std::string(carriage_name(static_cast<Carriage>(i))),
                      std::string(carriage_text(static_cast<Carriage>(i)))});
  return columns(rows, "");
}

}  // namespace vireo
