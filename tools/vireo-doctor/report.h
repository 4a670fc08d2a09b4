// The doctor's findings and their output as text or JSON. Owner: main. Thread: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/carriage.h"

namespace vireo::doctor {

enum class Level : uint8_t {
  kOk,
  kNote,  ///< works, but could be better
  kFail,  ///< because of it nothing is carried
};

/// One check of the host or the process.
struct Check {
  Level level = Level::kOk;
  std::string name = {};
  std::string text = {};
  std::string remedy = {};           ///< empty if there is nothing to do
  Carriage why = Carriage::kDevice;  ///< if it failed: the reason that sockets would get
  bool of_xdp = false;               ///< does not concern interfaces carried by an RDMA device
};

struct SettingLine {
  std::string name, value, origin;
};

struct InterfaceLine {
  std::string name;
  std::string kind;  ///< "physical", "veth", "vlan", ...
  std::string driver;
  bool up = false;
  uint32_t mtu = 0;
  uint32_t queues = 1;
  std::vector<std::string> addresses;
  bool carried = false;
  std::string mode;  ///< the mode, if carried
  Carriage why = Carriage::kCarried;
  std::string detail;  ///< the step that failed
  std::string remedy;
  bool shared = false;  ///< other processes have it, with which a further one shares it
  bool tried = false;   ///< opened as a test, not predicted
  std::vector<std::string> notes;
};

struct RdmaLine {
  std::string name;  ///< "mlx5_0"
  std::string summary;
  std::vector<std::string> ports;
  std::vector<Check> checks;
};

struct RouteLine {
  std::string destination;
  std::string interface, source, via;  ///< empty if unknown
  std::string neighbour;
  bool carried = false;
  Carriage why = Carriage::kCarried;
  std::string detail;
  std::vector<std::string> notes;
};

struct Report {
  std::string version;
  std::vector<Check> checks;
  std::vector<SettingLine> settings;    ///< those that differ from their defaults
  std::vector<std::string> complaints;  ///< about settings and the rules file
  std::vector<RdmaLine> rdma;
  std::vector<InterfaceLine> interfaces;
  std::optional<RouteLine> route;

  /// Something would be carried: any interface, or the requested destination.
  bool is_well() const;
};

std::string text_of(const Report& r);
std::string json_of(const Report& r);

}  // namespace vireo::doctor
