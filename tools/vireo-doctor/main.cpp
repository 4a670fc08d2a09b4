// vireo-doctor: would this host's sockets be carried, and if not, why and what helps. See
// vireo-doctor(8).
#include <fmt/format.h>
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "config/rules.h"
#include "config/settings.h"
#include "core/log.h"
#include "stack/filter/filter.h"
#include "tools/vireo-doctor/host.h"
#include "tools/vireo-doctor/interfaces.h"
#include "tools/vireo-doctor/packet_filter.h"

namespace vireo::doctor {
namespace {

constexpr const char* kUsage = R"(Usage: vireo-doctor [options]
Checks rights, memory, kernel, settings and interfaces, and says which traffic Vireo would carry.
Run it as the user and with the environment of the program in question.

  -r, --route ADDR[:PORT]  only what a socket that connects there would meet ([ADDR]:PORT for IPv6)
  -P, --program NAME       as this program, for the rules file (default: any name)
  -t, --try                open each interface as the library does, and close it again; a physical
                           link may stop for a moment
  -j, --json               JSON
  -h, --help               this text

Exit status: 0 if something would be carried, 1 if nothing would be, 2 for wrong options.
)";

struct Options {
  std::optional<Endpoint> route;
  std::string program = "any";
  bool attempt = false;
  bool json = false;
};

[[noreturn]] void refuse(const std::string& why) {
  fmt::print(stderr, "vireo-doctor: {}\n{}", why, kUsage);
  std::exit(2);
}

/// Parses 10.0.0.1, 10.0.0.1:80, fd00::1, [fd00::1]:80.
std::optional<Endpoint> parse_endpoint(std::string_view text) {
  if (const auto whole = IpAddr::parse(text)) return Endpoint{*whole, 0, 0};
  const auto colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  Endpoint e;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), e.port);
  const auto addr = IpAddr::parse(host);
  if (!addr || error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  e.addr = *addr;
  return e;
}

Options parse(int argc, char** argv) {
  constexpr option kLong[] = {
      {"route", required_argument, nullptr, 'r'}, {"program", required_argument, nullptr, 'P'},
      {"try", no_argument, nullptr, 't'},         {"json", no_argument, nullptr, 'j'},
      {"help", no_argument, nullptr, 'h'},        {}};
  Options o;
  for (int c; (c = ::getopt_long(argc, argv, "r:P:tjh", kLong, nullptr)) != -1;) switch (c) {
      case 'r':
        o.route = parse_endpoint(optarg);
        if (!o.route) refuse(fmt::format("--route: {} is not an address", optarg));
        break;
      case 'P':
        o.program = optarg;
        break;
      case 't':
        o.attempt = true;
        break;
      case 'j':
        o.json = true;
        break;
      case 'h':
        fmt::print("{}", kUsage);
        std::exit(0);
      default:
        refuse("wrong option");
    }
  if (optind != argc) refuse(fmt::format("{}: no such argument", argv[optind]));
  return o;
}

Report examine(const Options& o) {
  Report r;
  r.version = VIREO_VERSION;
  ParsedSettings p = parse_settings(environ);
  const Settings& s = p.settings;
  r.checks = check_host(s);
  r.settings = changed_settings(p);
  Diagnostics said = p.diagnostics;
  const bool named = s.config_file != Settings{}.config_file;
  const Rules rules = Rules::load(s.config_file, named, said);
  for (const Diagnostic& d : said) r.complaints.push_back(d.text);
  const bool exists = ::access(s.config_file.c_str(), F_OK) == 0;
  r.checks.push_back({Level::kOk,
                      "rules file",
                      exists ? fmt::format("{}: {} `use` line(s)", s.config_file, rules.size())
                             : fmt::format("no {}: all is carried but DNS", s.config_file),
                      "",
                      {}});

  auto mirror = net::Mirror::open();
  if (!mirror) {
    r.checks.push_back(
        {Level::kFail, "netlink",
         fmt::format("{}: {}", mirror.error().where, std::strerror(mirror.error().code)), "",
         Carriage::kDevice});
    return r;
  }
  net::SnapshotStore::Reader reader((*mirror)->store());
  const filter::Filter packet_filter(is_own_program);
  const auto filter_rules = packet_filter.rules();
  r.checks.push_back(check_packet_filter(s, *filter_rules));
  RdmaFindings rdma = check_rdma(s, reader.snapshot());
  std::ranges::copy(rdma.checks, std::back_inserter(r.checks));
  auto interfaces = check_interfaces(s, reader.snapshot(), r.checks, rdma);
  r.rdma = std::move(rdma.devices);
  if (o.attempt) try_interfaces(s, **mirror, interfaces);
  if (o.route) {
    r.route = check_route(s, rules, o.program, reader.snapshot(), *o.route, interfaces);
    judge_route(s, *filter_rules, reader.snapshot(), *o.route, *r.route);
  } else {
    note_packet_filter(s, *filter_rules, reader.snapshot(), interfaces);
    r.interfaces = std::move(interfaces);
  }
  return r;
}

}  // namespace
}  // namespace vireo::doctor

int main(int argc, char** argv) {
  const auto o = vireo::doctor::parse(argc, argv);
  vireo::LogSink::level.store(static_cast<int>(vireo::LogLevel::kPanic));
  const auto report = vireo::doctor::examine(o);
  fmt::print("{}{}", o.json ? vireo::doctor::json_of(report) : vireo::doctor::text_of(report),
             o.json ? "\n" : "");
  return report.is_well() ? 0 : 1;
}
