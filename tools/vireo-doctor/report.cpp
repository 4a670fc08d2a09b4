#include "tools/vireo-doctor/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/stats_json.h"

namespace vireo::doctor {
namespace {

std::string_view word(Level l) {
  switch (l) {
    case Level::kOk:
      return "ok";
    case Level::kNote:
      return "note";
    case Level::kFail:
      return "FAIL";
  }
  return "?";
}

std::string joined(const std::vector<std::string>& all, std::string_view empty) {
  std::string out;
  for (const std::string& s : all) out += (out.empty() ? "" : ", ") + s;
  return out.empty() ? std::string(empty) : out;
}

std::string json_list(const std::vector<std::string>& all) {
  std::string out = "[";
  for (const std::string& s : all) out += (out.size() == 1 ? "" : ",") + json_string(s);
  return out + "]";
}

void put_check(std::string& out, const Check& c, std::string_view indent) {
  out += fmt::format("{}{:<4}  {:<14} {}\n", indent, word(c.level), c.name, c.text);
  if (!c.remedy.empty()) out += fmt::format("{}{:20} remedy: {}\n", indent, "", c.remedy);
}

void put_device(std::string& out, const RdmaLine& d) {
  out += fmt::format("  {}: {}\n", d.name, d.summary);
  for (const std::string& p : d.ports) out += fmt::format("      {}\n", p);
  for (const Check& c : d.checks) put_check(out, c, "      ");
}

std::string json_checks(const std::vector<Check>& all) {
  std::string out = "[";
  for (const Check& c : all)
    out += fmt::format("{}{{\"name\":{},\"level\":\"{}\",\"text\":{},\"remedy\":{}}}",
                       out.size() == 1 ? "" : ",", json_string(c.name),
                       c.level == Level::kFail ? "fail" : word(c.level), json_string(c.text),
                       json_string(c.remedy));
  return out + "]";
}

void put_interface(std::string& out, const InterfaceLine& i) {
  out += fmt::format("  {}: {}\n", i.name,
                     i.carried ? fmt::format("carried, {}{}", i.mode, i.tried ? " (tried)" : "")
                               : fmt::format("not carried: {}", carriage_name(i.why)));
  out += fmt::format("      {}{}, {}, MTU {}, {} queue{}; {}\n", i.kind,
                     i.driver.empty() ? "" : ", driver " + i.driver, i.up ? "up" : "down", i.mtu,
                     i.queues, i.queues == 1 ? "" : "s", joined(i.addresses, "no address"));
  if (!i.carried)
    out += fmt::format("      why: {}\n", i.detail.empty() ? carriage_text(i.why) : i.detail);
  if (!i.carried && !i.remedy.empty()) out += fmt::format("      remedy: {}\n", i.remedy);
  for (const std::string& n : i.notes) out += fmt::format("      note: {}\n", n);
}

void put_route(std::string& out, const RouteLine& r) {
  out += fmt::format("destination {}: {}\n", r.destination,
                     r.carried ? "carried" : fmt::format("not carried: {}", carriage_name(r.why)));
  if (!r.interface.empty())
    out += fmt::format("  by {} from {} via {} (neighbour {})\n", r.interface, r.source, r.via,
                       r.neighbour);
  if (!r.carried) out += fmt::format("  why: {}\n", carriage_text(r.why));
  if (!r.carried && !r.detail.empty()) out += fmt::format("  step: {}\n", r.detail);
  for (const std::string& n : r.notes) out += fmt::format("  note: {}\n", n);
}

}  // namespace

bool Report::is_well() const {
  if (route) return route->carried;
  return std::ranges::any_of(interfaces, [](const InterfaceLine& i) { return i.carried; });
}

std::string text_of(const Report& r) {
  std::string out = fmt::format("Vireo {}\n", r.version);
  for (const Check& c : r.checks) put_check(out, c, "  ");
  if (!r.settings.empty()) out += "settings that are not at their default\n";
  for (const SettingLine& s : r.settings)
    out += fmt::format("  {}={}  ({})\n", s.name, s.value, s.origin);
  for (const std::string& c : r.complaints) out += fmt::format("  note: {}\n", c);
  if (!r.rdma.empty()) out += "RDMA devices\n";
  for (const RdmaLine& d : r.rdma) put_device(out, d);
  if (!r.interfaces.empty()) out += "interfaces\n";
  for (const InterfaceLine& i : r.interfaces) put_interface(out, i);
  if (r.route) put_route(out, *r.route);
  return out;
}

std::string json_of(const Report& r) {
  std::string out = fmt::format("{{\"version\":{},\"well\":{},\"checks\":{},\"settings\":[",
                                json_string(r.version), r.is_well(), json_checks(r.checks));
  const char* comma = "";
  for (const SettingLine& s : r.settings) {
    out += fmt::format("{}{{\"name\":{},\"value\":{},\"origin\":{}}}", comma, json_string(s.name),
                       json_string(s.value), json_string(s.origin));
    comma = ",";
  }
  out += fmt::format("],\"complaints\":{},\"rdma\":[", json_list(r.complaints));
  comma = "";
  for (const RdmaLine& d : r.rdma) {
    out += fmt::format("{}{{\"name\":{},\"summary\":{},\"ports\":{},\"checks\":{}}}", comma,
                       json_string(d.name), json_string(d.summary), json_list(d.ports),
                       json_checks(d.checks));
    comma = ",";
  }
  out += "],\"interfaces\":[";
  comma = "";
  for (const InterfaceLine& i : r.interfaces) {
    out += fmt::format(
        "{}{{\"name\":{},\"kind\":{},\"driver\":{},\"up\":{},\"mtu\":{},\"queues\":{},"
        "\"addresses\":{},\"carried\":{},\"mode\":{},\"reason\":\"{}\",\"text\":{},\"detail\":{},"
        "\"remedy\":{},\"tried\":{},\"notes\":{}}}",
        comma, json_string(i.name), json_string(i.kind), json_string(i.driver), i.up, i.mtu,
        i.queues, json_list(i.addresses), i.carried, json_string(i.mode),
        i.carried ? "" : carriage_name(i.why), json_string(i.carried ? "" : carriage_text(i.why)),
        json_string(i.detail), json_string(i.remedy), i.tried, json_list(i.notes));
    comma = ",";
  }
  out += "]";
  if (r.route)
    out += fmt::format(
        ",\"route\":{{\"destination\":{},\"interface\":{},\"source\":{},\"via\":{},"
        "\"neighbour\":{},\"carried\":{},\"reason\":\"{}\",\"text\":{},\"detail\":{},"
        "\"notes\":{}}}",
        json_string(r.route->destination), json_string(r.route->interface),
        json_string(r.route->source), json_string(r.route->via), json_string(r.route->neighbour),
        r.route->carried, r.route->carried ? "" : carriage_name(r.route->why),
        json_string(r.route->carried ? "" : carriage_text(r.route->why)),
        json_string(r.route->detail), json_list(r.route->notes));
  return out + "}";
}

}  // namespace vireo::doctor
