// What loss recovery achieves, by wire and options: a matrix of seeded bulk transfers, compared
// with recovery_matrix.txt. VIREO_SIM_REWRITE=1 writes that file anew; a row that moved on purpose
// goes into the commit that moved it. VIREO_SIM_SEED=<n> plays one seed of every row.
//
// Tolerance, for the mean over the seeds of a row: goodput 15 %, retransmissions 25 % and 4,
// timeouts 2. A change of congestion control that moves less is not recovery's business.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/sim/two_hosts.h"

namespace vireo::sim {
namespace {

constexpr uint64_t kSeeds = 3;
constexpr const char* kPath = VIREO_SIM_DIR "/recovery_matrix.txt";

struct Row {
  std::string name;
  double goodput = 0;          ///< kilobytes a second
  double recovering = 0;       ///< milliseconds not in kOpen
  double retransmissions = 0;  ///< segments
  double timeouts = 0;
  double probes = 0;
  double undos = 0;

  std::string str() const {
    return fmt::format("{:54} {:8.0f} {:8.0f} {:8.1f} {:6.1f} {:6.1f} {:6.1f}", name, goodput,
                       recovering, retransmissions, timeouts, probes, undos);
  }
};

struct Wire {
  const char* name;
  void (*set)(Scenario&);
};
constexpr Wire kWires[] = {
    {"clean", [](Scenario&) {}},
    {"loss 0.1%", [](Scenario& s) { s.wire[0].loss_ppm = 1000; }},
    {"loss 1%", [](Scenario& s) { s.wire[0].loss_ppm = 10'000; }},
    {"loss 5% both ways", [](Scenario& s) { s.wire[0].loss_ppm = s.wire[1].loss_ppm = 50'000; }},
    {"reorder 5%", [](Scenario& s) { s.wire[0].reorder_ppm = 50'000; }},
    {"reorder 5%, loss 1%",
     [](Scenario& s) {
       s.wire[0].reorder_ppm = 50'000;
       s.wire[0].loss_ppm = 10'000;
     }},
    {"duplicates 5%, loss 1%",
     [](Scenario& s) {
       s.wire[0].duplicate_ppm = 50'000;
       s.wire[0].loss_ppm = 10'000;
     }},
    {"reorder 1%, in bursts",
     [](Scenario& s) {
       s.wire[0].reorder_ppm = 10'000;
       s.wire[0].reorder_by = Duration::us(100);
       s.wire[0].bytes_per_second = 125'000'000;
       s.gathers = Duration::us(300);
     }},
    {"loss 1%, in bursts",
     [](Scenario& s) {
       s.wire[0].loss_ppm = 10'000;
       s.wire[0].bytes_per_second = 125'000'000;
       s.gathers = Duration::us(300);
     }},
    {"jitter 2 ms", [](Scenario& s) { s.wire[0].jitter = Duration::ms(2); }},
    {"rate 5 MB/s, queue 50 kB",
     [](Scenario& s) {
       s.wire[0].bytes_per_second = 5'000'000;
       s.wire[0].queue_bytes = 50'000;
     }},
    {"rate 5 MB/s, queue 50 kB, loss 0.5%",
     [](Scenario& s) {
       s.wire[0].bytes_per_second = 5'000'000;
       s.wire[0].queue_bytes = 50'000;
       s.wire[0].loss_ppm = 5000;
     }},
};

struct Options {
  const char* name;
  bool sack;
  bool timestamps;
  uint16_t mss;
  int64_t one_way_ms;
  uint32_t buffer;
  bool syn_data = false;  ///< RFC 7413: the first segment goes with the SYN
};
constexpr Options kOptions[] = {
    {"sack ts", true, true, 1460, 5, 1'000'000},
    {"sack", true, false, 1460, 5, 1'000'000},
    {"none", false, false, 1460, 5, 1'000'000},
    {"sack ts mss 536", true, true, 536, 5, 1'000'000},
    {"sack ts 80 ms", true, true, 1460, 40, 1'000'000},
    {"sack ts 64 kB", true, true, 1460, 5, 65'536},
    {"sack ts syn data", true, true, 1460, 5, 1'000'000, true},
};

Scenario scenario(const Wire& w, const Options& o, uint64_t seed) {
  Scenario s;
  s.seed = seed;
  s.iss[0] = Seq32(0xffff'0000U);  // the numbers wrap on the way
  s.app[0] = {.to_send = 1'500'000, .max_write = 70'000, .max_read = 70'000};
  s.app[1] = {.to_send = 0, .max_write = 70'000, .max_read = 200'000};
  for (int i = 0; i < 2; ++i) {
    tcp::Config& c = s.config[i];
    c.mss = o.mss;
    c.sack = o.sack;
    c.timestamps = o.timestamps;
    c.snd_buf = c.rcv_buf = o.buffer;
    c.congestion = tcp::CcKind::kReno;
    s.wire[i].delay = Duration::ms(o.one_way_ms);
  }
  s.frames = 8192;
  s.syn_data = s.takes_syn_data = o.syn_data;
  w.set(s);
  return s;
}

Row measure(const Wire& w, const Options& o) {
  Row row;
  row.name = fmt::format("{} | {}", w.name, o.name);
  uint64_t first = 1;
  uint64_t last = kSeeds;
  if (const char* one = std::getenv("VIREO_SIM_SEED"))
    first = last = std::strtoull(one, nullptr, 10);
  for (uint64_t seed = first; seed <= last; ++seed) {
    const Scenario s = scenario(w, o, seed);
    const Outcome r = run(s);
    EXPECT_EQ(r.failure, "") << row.name << ": VIREO_SIM_SEED=" << seed << "\n" << s.str();
    const double seconds = static_cast<double>((r.end - r.start).ns()) / 1e9;
    const double share = 1.0 / static_cast<double>(last - first + 1);
    row.goodput += share * static_cast<double>(s.app[0].to_send) / 1e3 / seconds;
    row.recovering += share * static_cast<double>(r.recovering.us()) / 1e3;
    row.retransmissions += share * static_cast<double>(r.retransmissions);
    row.timeouts += share * r.timeouts;
    row.probes += share * r.probes;
    row.undos += share * r.undos;
  }
  return row;
}

std::map<std::string, Row> read_snapshot() {
  std::map<std::string, Row> rows;
  std::ifstream file(kPath);
  std::string line;
  while (std::getline(file, line)) {
    if (line.size() < 55 || line[0] == '#') continue;
    Row r;
    r.name = line.substr(0, line.find_last_not_of(' ', 53) + 1);
    std::istringstream(line.substr(54)) >> r.goodput >> r.recovering >> r.retransmissions >>
        r.timeouts >> r.probes >> r.undos;
    rows[r.name] = r;
  }
  return rows;
}

TEST(Matrix, RecoveryIsAsGoodAsTheSnapshotSays) {
  const bool rewrite = std::getenv("VIREO_SIM_REWRITE") != nullptr;
  const bool one_seed = std::getenv("VIREO_SIM_SEED") != nullptr;
  const auto before = read_snapshot();
  std::string all = fmt::format(
      "# 1.5 MB one way, Reno; mean of {} seeds. See matrix_test.cpp.\n"
      "# {:52} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6}\n",
      kSeeds, "wire | options", "kB/s", "rec ms", "rtx", "RTO", "TLP", "undo");
  double with_sack = 0;
  double without = 0;
  for (const Wire& w : kWires) {
    for (const Options& o : kOptions) {
      const Row now = measure(w, o);
      (o.sack ? with_sack : without) += &o == &kOptions[0] || !o.sack ? now.goodput : 0;
      all += now.str() + "\n";
      if (rewrite || one_seed) continue;
      const auto was = before.find(now.name);
      if (was == before.end()) {
        ADD_FAILURE() << "not in the snapshot: " << now.str();
        continue;
      }
      const Row& b = was->second;
      const bool near =
          std::abs(now.goodput - b.goodput) <= 0.15 * b.goodput &&
          std::abs(now.retransmissions - b.retransmissions) <= 0.25 * b.retransmissions + 4 &&
          std::abs(now.timeouts - b.timeouts) <= 2;
      EXPECT_TRUE(near) << "was " << b.str() << "\nis  " << now.str();
    }
  }
  if (!one_seed) {
    EXPECT_GT(with_sack, without);  // over all wires
  }
  if (rewrite) std::ofstream(kPath) << all;
  if (one_seed) fmt::print("{}", all);
}

}  // namespace
}  // namespace vireo::sim
