// What the doctor found, and how it is printed, as text or JSON. Owner: main. Thread: one.
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
  kNote,  ///< works, could be better
  kFail,  ///< nothing is carried because of it
};

/// One check of the host or the process.
struct Check {
  Level level = Level::kOk;
  std::string name = {};
  std::string text = {};
  std::string remedy = {};           ///< empty if there is nothing to do
  Carriage why = Carriage::kDevice;  ///< of a failed one: the reason sockets would bear
  bool of_xdp = false;               ///< says nothing of interfaces that an RDMA device carries
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
  std::string mode;  ///< how, if it is carried
  Carriage why = Carriage::kCarried;
  std::string detail;  ///< the step that refuses
  std::string remedy;
  bool tried = false;  ///< opened for the test, not guessed
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
  std::string interface, source, via;  ///< empty where not known
  std::string neighbour;
  bool carried = false;
  Carriage why = Carriage::kCarried;
  std::string detail;
  std::vector<std::string> notes;
};

struct Report {
  std::string version;
  std::vector<Check> checks;
  std::vector<SettingLine> settings;    ///< those that are not at their default
  std::vector<std::string> complaints;  ///< about settings and the rules file
  std::vector<RdmaLine> rdma;
  std::vector<InterfaceLine> interfaces;
  std::optional<RouteLine> route;

  /// Something would be carried: any interface, or the destination that was asked for.
  bool is_well() const;
};

std::string text_of(const Report& r);
std::string json_of(const Report& r);

}  // namespace vireo::doctor
