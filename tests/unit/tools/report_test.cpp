#include "tools/vireo-doctor/report.h"

#include <gtest/gtest.h>

namespace vireo::doctor {
namespace {

Report made_up() {
  Report r;
  r.version = "1.2";
  r.checks.push_back({Level::kFail, "rights", "CAP_BPF missing", "run as root", Carriage::kRights});
  r.settings.push_back({"VMA_SPEC", "latency", "environment"});
  r.complaints.emplace_back("VMA_X: no such setting");
  r.rdma.push_back({"mlx5_0",
                    "firmware 22.1",
                    {"port 1: Ethernet, active; eth1 by sysfs"},
                    {{Level::kNote, "IOMMU", "translates", "iommu=pt"}}});
  InterfaceLine i;
  i.name = "eth1";
  i.kind = "physical";
  i.driver = "ice";
  i.up = true;
  i.mtu = 1500;
  i.queues = 4;
  i.addresses = {"10.0.0.1/24"};
  i.why = Carriage::kRights;
  i.detail = "rights: CAP_BPF missing";
  i.remedy = "run as root";
  r.interfaces.push_back(i);
  return r;
}

TEST(Report, TextSaysWhyAndWhatToDo) {
  EXPECT_EQ(text_of(made_up()),
            "Vireo 1.2\n"
            "  FAIL  rights         CAP_BPF missing\n"
            "                       remedy: run as root\n"
            "settings that are not at their default\n"
            "  VMA_SPEC=latency  (environment)\n"
            "  note: VMA_X: no such setting\n"
            "RDMA devices\n"
            "  mlx5_0: firmware 22.1\n"
            "      port 1: Ethernet, active; eth1 by sysfs\n"
            "      note  IOMMU          translates\n"
            "                           remedy: iommu=pt\n"
            "interfaces\n"
            "  eth1: not carried: rights\n"
            "      physical, driver ice, up, MTU 1500, 4 queues; 10.0.0.1/24\n"
            "      why: rights: CAP_BPF missing\n"
            "      remedy: run as root\n");
}

TEST(Report, JsonOfTheSame) {
  EXPECT_EQ(
      json_of(made_up()),
      R"({"version":"1.2","well":false,"checks":[{"name":"rights","level":"fail",)"
      R"("text":"CAP_BPF missing","remedy":"run as root"}],)"
      R"("settings":[{"name":"VMA_SPEC","value":"latency","origin":"environment"}],)"
      R"("complaints":["VMA_X: no such setting"],"rdma":[{"name":"mlx5_0",)"
      R"("summary":"firmware 22.1","ports":["port 1: Ethernet, active; eth1 by sysfs"],)"
      R"("checks":[{"name":"IOMMU","level":"note","text":"translates","remedy":"iommu=pt"}]}],)"
      R"("interfaces":[{"name":"eth1",)"
      R"("kind":"physical","driver":"ice","up":true,"mtu":1500,"queues":4,)"
      R"("addresses":["10.0.0.1/24"],"carried":false,"mode":"","reason":"rights",)"
      R"("text":"a capability is missing: CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF are needed",)"
      R"("detail":"rights: CAP_BPF missing","remedy":"run as root","tried":false,"notes":[]}]})");
}

TEST(Report, WellIfAnInterfaceOrTheDestinationIsCarried) {
  Report r = made_up();
  EXPECT_FALSE(r.is_well());
  r.interfaces[0].carried = true;
  EXPECT_TRUE(r.is_well());
  r.route.emplace();
  EXPECT_FALSE(r.is_well()) << "the destination was asked for";
  r.route->carried = true;
  EXPECT_TRUE(r.is_well());
}

}  // namespace
}  // namespace vireo::doctor
