#include "core/stats_json.h"

#include <fmt/format.h>

#include <iterator>

namespace vireo {
namespace {

using Out = fmt::memory_buffer;

template <class... A>
void put(Out& out, fmt::format_string<A...> f, A&&... args) {
  fmt::vformat_to(std::back_inserter(out), f, fmt::make_format_args(args...));
}

template <class List, class Values>
void put_counts(Out& out, const List& list, const Values& values) {
  for (size_t i = 0; i < list.size(); ++i)
    put(out, "{}\"{}\":{}", i == 0 ? "" : ",", list[i].name, values[i]);
}

void put_socket(Out& out, const SocketReading& s) {
  const bool refused = !s.is_carried();
  put(out,
      "{{\"fd\":{},\"proto\":\"{}\",\"family\":{},\"state\":\"{}\",\"closed\":{},\"carried\":{},"
      "\"ring\":{},\"reason\":\"{}\",\"text\":{},\"detail\":{},\"errno\":{},\"local\":{},"
      "\"remote\":{},",
      s.fd, s.tcp ? "tcp" : "udp", s.v6 ? 6 : 4, s.state(), s.closed, s.is_carried(), s.ring,
      refused ? carriage_name(s.carriage) : "",
      json_string(refused ? carriage_text(s.carriage) : ""), json_string(s.detail), s.err,
      json_string(endpoint_text(s.local, s.v6)), json_string(endpoint_text(s.remote, s.v6)));
  put_counts(out, kSocketCounters, s.counts);
  put(out, "}}");
}

void put_process(Out& out, const ProcessReading& p) {
  put(out, "{{\"pid\":{},\"name\":{},\"ports\":[", p.pid, json_string(p.program));
  const char* comma = "";
  for (const PortReading& port : p.ports) {
    put(out, "{}{{\"name\":{},\"ifindex\":{},\"mode\":{},\"queues\":{}}}", comma,
        json_string(port.name), port.ifindex, json_string(port.mode), port.queues);
    comma = ",";
  }
  put(out, "],\"group\":{{");
  put_counts(out, kGroupCounters, p.group);
  put(out, "}},\"engine\":{{");
  put_counts(out, kEngineCounters, p.engine);
  put(out, "}},\"rings\":[");
  comma = "";
  for (const EngineCounts& ring : p.rings) {
    put(out, "{}{{", comma);
    put_counts(out, kEngineCounters, ring);
    put(out, "}}");
    comma = ",";
  }
  put(out, "],\"decisions\":{{\"carried\":{},\"kernel\":{},\"refused\":{{", p.carried, p.kernel);
  comma = "";
  for (size_t i = 0; i < p.refused.size(); ++i) {
    if (p.refused[i] == 0) continue;
    put(out, "{}\"{}\":{}", comma, carriage_name(static_cast<Carriage>(i)), p.refused[i]);
    comma = ",";
  }
  put(out, "}}}},\"sockets\":[");
  comma = "";
  for (const SocketReading& s : p.sockets) {
    put(out, "{}", comma);
    put_socket(out, s);
    comma = ",";
  }
  put(out, "],\"closed\":{{");
  comma = "";
  for (size_t i = 0; i < p.closed.size(); ++i) {
    if (p.closed[i].sockets == 0) continue;
    put(out, "{}\"{}\":{{\"sockets\":{},", comma, carriage_name(static_cast<Carriage>(i)),
        p.closed[i].sockets);
    put_counts(out, kSocketCounters, p.closed[i].counts);
    put(out, "}}");
    comma = ",";
  }
  put(out, "}}}}");
}

}  // namespace

std::string json_string(std::string_view text) {
  Out out;
  out.push_back('"');
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      put(out, "\\{}", c);
    else if (u < 0x20 || u == 0x7f)
      put(out, "\\u{:04x}", u);
    else if (u >= 0x80)
      put(out, "\\ufffd");
    else
      out.push_back(c);
  }
  out.push_back('"');
  return fmt::to_string(out);
}

std::string endpoint_text(const Endpoint& e, bool v6) {
  if (e.port == 0 && e.addr.is_unspecified()) return {};
  // An IPv4 socket's slot may hold either family's wildcard.
  if (!v6 && e.addr.is_unspecified()) return Endpoint{IpAddr::any_v4(), e.port, 0}.str();
  return e.str();
}

std::string processes_json(std::span<const ProcessReading> all) {
  Out out;
  put(out, "{{\"processes\":[");
  const char* comma = "";
  for (const ProcessReading& p : all) {
    put(out, "{}", comma);
    put_process(out, p);
    comma = ",";
  }
  put(out, "]}}");
  return fmt::to_string(out);
}

}  // namespace vireo
