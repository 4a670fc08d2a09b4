#include "config/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "config/file.h"
#include "config/nearest.h"
#include "config/pattern.h"

namespace vireo {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

struct RoleName {
  std::string_view name;
  Role role;
};
constexpr std::array kRoles = {
    RoleName{"tcp_server", Role::kTcpServer}, RoleName{"tcp_client", Role::kTcpClient},
    RoleName{"udp_sender", Role::kUdpSender}, RoleName{"udp_receiver", Role::kUdpReceiver},
    RoleName{"udp_connect", Role::kUdpConnect}};

constexpr std::string_view kTransports[] = {"vireo", "vma", "os", "sdp", "sa", "*"};
constexpr std::string_view kStatements[] = {"application-id", "use", "log"};

/// True if the first address of a `use` is the remote end.
bool is_remote_first(Role r) {
  return r == Role::kTcpClient || r == Role::kUdpSender || r == Role::kUdpConnect;
}
/// True if the second address is used.
bool has_second(Role r) { return r == Role::kTcpClient || r == Role::kUdpConnect; }

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string printable(std::string_view text) {
  constexpr size_t kMax = 40;
  std::string out;
  for (const char c : text.substr(0, kMax)) out += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > kMax) out += "...";
  return out;
}

}  // namespace

/// Parses one line at a time; a failed step has reported the error and returns nullopt or false.
class RulesParser {
 public:
  RulesParser(std::string_view filename, Diagnostics& out) : filename_(filename), out_(out) {}

  Rules run(std::string_view text) {
    for (size_t at = 0; at <= text.size(); ++line_number_) {
      const size_t end = std::min(text.find('\n', at), text.size());
      line_ = text.substr(at, end - at);
      at_ = 0;
      statement();
      at = end + 1;
    }
    std::erase_if(rules_.blocks_, [](const Rules::Block& b) { return b.is_void; });
    return std::move(rules_);
  }

 private:
  // -- letters and words
  // -------------------------------------------------------------------------------------------

  void skip_blanks() {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
  }
  /// True at the end or at a comment.
  bool at_end() {
    skip_blanks();
    return at_ == line_.size() || line_[at_] == '#';
  }
  std::string_view word() {
    skip_blanks();
    const size_t from = at_;
    while (at_ < line_.size() && !is_blank(line_[at_])) ++at_;
    return line_.substr(from, at_ - from);
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == line_.size() || line_[at_] != c) return false;
    ++at_;
    return true;
  }
  /// The text at the cursor, for a message.
  std::string here() {
    if (at_end()) return "the end of the line";
    const size_t from = at_;
    const std::string w = printable(word());
    at_ = from;
    return "'" + w + "'";
  }

  void report(Severity severity, size_t column, std::string_view what) {
    out_.push_back(
        {severity, fmt::format("{}:{}:{}: {}", filename_, line_number_, column + 1, what)});
  }
  bool error(size_t column, std::string_view what) {
    report(Severity::kWarning, column, fmt::format("{}; line ignored", what));
    return false;
  }
  bool expected(std::string_view what) {
    const std::string found = here();  // moves the cursor to the next word
    return error(at_, fmt::format("expected {}, found {}", what, found));
  }
  bool unknown(size_t column, std::string_view kind, std::string_view w,
               std::span<const std::string_view> names) {
    std::string list;
    for (const auto& n : names) list.append(list.empty() ? "" : ", ").append(n);
    const std::string_view near = nearest(w, names);
    return error(column, fmt::format("unknown {} '{}'; known: {}{}{}", kind, printable(w), list,
                                     near.empty() ? "" : "; nearest: ", near));
  }
  bool end_of_statement() { return at_end() || expected("the end of the line"); }

  // -- statements
  // --------------------------------------------------------------------------------------------------

  void statement() {
    if (at_end()) return;
    const size_t column = at_;
    const std::string_view w = word();
    if (w == "application-id") {
      if (!application_id()) begin_block("", "", true);
    } else if (w == "use") {
      use();
    } else if (w == "log") {
      log();
    } else {
      unknown(column, "statement", w, kStatements);
    }
  }

  bool application_id() {
    if (at_end()) return broken("a program name, a pattern or *");
    const std::string_view program = word();
    if (at_end()) return broken("an id or *");
    const std::string_view id = word();
    if (!at_end()) return broken("the end of the line");
    begin_block(program, id, false);
    return true;
  }
  bool broken(std::string_view what) {
    const std::string found = here();
    report(Severity::kWarning, at_,
           fmt::format("expected {}, found {}; the use lines below it apply to no program", what,
                       found));
    return false;
  }

  void begin_block(std::string_view program, std::string_view id, bool is_void) {
    auto& blocks = rules_.blocks_;
    const auto same = std::ranges::find_if(blocks, [&](const Rules::Block& b) {
      return b.is_void == is_void && b.program == program && b.id == id;
    });
    if (same == blocks.end()) {
      blocks.push_back({std::string(program), std::string(id), {}, is_void});
      block_ = blocks.size() - 1;
    } else {
      block_ = static_cast<size_t>(same - blocks.begin());
    }
  }

  bool use() {
    if (at_end()) return expected("a transport (vireo, vma, os or *)");
    const size_t transport_column = at_;
    const std::string_view transport = word();
    if (std::ranges::find(kTransports, transport) == std::end(kTransports))
      return unknown(transport_column, "transport", transport, kTransports);

    if (at_end()) return expected("a role (tcp_server, tcp_client, ...)");
    const size_t role_column = at_;
    const std::string_view role_word = word();
    const auto role = std::ranges::find(kRoles, role_word, &RoleName::name);
    if (role == kRoles.end()) {
      std::array<std::string_view, kRoles.size()> names;
      std::ranges::transform(kRoles, names.begin(), &RoleName::name);
      return unknown(role_column, "role", role_word, names);
    }

    Rules::Use u{.role = role->role,
                 .transport = transport == "os" ? Transport::kKernel : Transport::kVireo,
                 .first = {},
                 .second = {}};
    if (!tuple(u.first)) return false;
    skip_blanks();
    const size_t second_column = at_;
    if (take(':')) {
      Rules::Match second;
      if (!tuple(second)) return false;
      u.second = second;
    }
    if (!end_of_statement()) return false;

    if (u.second && !has_second(u.role)) {
      report(Severity::kNote, second_column,
             fmt::format("a second address means nothing for {}", role_word));
      u.second.reset();
    }
    if (transport == "sdp" || transport == "sa") {
      report(Severity::kNote, transport_column,
             fmt::format("transport {} does not exist here; the line fits nothing", transport));
      return true;
    }
    if (block_ == kNoBlock) begin_block("*", "*", false);
    rules_.blocks_[block_].uses.push_back(std::move(u));
    return true;
  }

  bool tuple(Rules::Match& m) {
    if (!address(m)) return false;
    if (!take(':')) return expected("':' and ports");
    return ports(m);
  }

  bool address(Rules::Match& m) {
    skip_blanks();
    if (take('*')) return true;
    const size_t column = at_;
    const bool is_bracketed = take('[');
    const size_t from = at_;
    while (at_ < line_.size() && is_address_letter(line_[at_], is_bracketed)) ++at_;
    const std::string_view text = line_.substr(from, at_ - from);
    const auto net = IpAddr::parse(text);
    const bool is_v6_text = text.find(':') != text.npos;
    if (!net || is_v6_text != is_bracketed) {
      at_ = column;
      return expected("an address: *, 10.0.0.0/8 or [2001:db8::]/32");
    }
    m.net = *net;

    const unsigned most = is_bracketed ? 128 : 32;
    unsigned bits = most;
    bool has_prefix = false;
    if (is_bracketed && take('/')) {
      if (!prefix(bits, most)) return false;
      has_prefix = true;
    }
    if (is_bracketed && !take(']')) return expected("']'");
    if (!has_prefix && take('/') && !prefix(bits, most)) return false;
    if (is_bracketed && net->is_v4()) {  // ::ffff:10.0.0.0/104 is 10.0.0.0/8
      if (bits < 96) return error(column, "a v4-mapped address needs a prefix of at least 96");
      bits -= 96;
    }
    m.bits = bits;
    return true;
  }

  static bool is_address_letter(char c, bool is_bracketed) {
    if (is_digit(c) || c == '.') return true;
    return is_bracketed && (c == ':' || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
  }

  bool prefix(unsigned& bits, unsigned most) { return number("a prefix length", 0, most, bits); }

  bool ports(Rules::Match& m) {
    if (take('*')) return true;
    unsigned first = 0;
    if (!number("a port", 0, 65'535, first)) return false;
    unsigned last = first;
    const size_t column = at_;
    if (take('-') && !number("a port", 0, 65'535, last)) return false;
    if (first > last) return error(column, fmt::format("ports {}-{} run backwards", first, last));
    m.first_port = static_cast<uint16_t>(first);
    m.last_port = static_cast<uint16_t>(last);
    return true;
  }

  bool number(std::string_view what, unsigned least, unsigned most, unsigned& out) {
    skip_blanks();
    const std::string_view rest = line_.substr(at_);
    unsigned v = 0;
    const auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), v);
    if (ec != std::errc() || v < least || v > most)
      return expected(fmt::format("{}, {} to {}", what, least, most));
    at_ += static_cast<size_t>(end - rest.data());
    out = v;
    return true;
  }

  bool log() {
    Rules::Log log = rules_.log_;
    if (at_end()) return expected("destination or min-level");
    while (!at_end()) {
      const size_t column = at_;
      const std::string_view w = word();
      if (w == "destination") {
        if (!log_destination(log)) return false;
      } else if (w == "min-level") {
        unsigned level = 0;
        if (!number("a level", 1, 9, level)) return false;
        if (at_ < line_.size() && !is_blank(line_[at_])) return expected("a blank");
        log.level = level_of(level);
      } else {
        constexpr std::string_view kWords[] = {"destination", "min-level"};
        return unknown(column, "word", w, kWords);
      }
    }
    rules_.log_ = std::move(log);
    return true;
  }

  bool log_destination(Rules::Log& log) {
    constexpr std::string_view kWords[] = {"stderr", "syslog", "file"};
    if (at_end()) return expected("stderr, syslog or file");
    const size_t column = at_;
    const std::string_view w = word();
    if (w == "stderr") {
      log.destination = Rules::LogDestination::kStderr;
    } else if (w == "syslog") {
      log.destination = Rules::LogDestination::kSyslog;
    } else if (w == "file") {
      if (at_end()) return expected("a file name");
      log.destination = Rules::LogDestination::kFile;
      log.file = word();
    } else {
      return unknown(column, "log destination", w, kWords);
    }
    return true;
  }

  static LogLevel level_of(unsigned libvma_level) {
    if (libvma_level == 9) return LogLevel::kError;
    if (libvma_level == 8) return LogLevel::kWarn;
    if (libvma_level >= 5) return LogLevel::kInfo;
    if (libvma_level >= 2) return LogLevel::kDetails;
    return LogLevel::kDebug;
  }

  static constexpr size_t kNoBlock = static_cast<size_t>(-1);

  std::string_view filename_;
  Diagnostics& out_;
  Rules rules_;
  size_t block_ = kNoBlock;  ///< block that gets `use` lines
  std::string_view line_;
  size_t line_number_ = 1;
  size_t at_ = 0;  ///< cursor in line_
};

bool Rules::Match::fits(const Endpoint& e) const {
  return e.port >= first_port && e.port <= last_port && (!net || e.addr.in_prefix(*net, bits));
}

bool Rules::Block::is_for(std::string_view program_name, std::string_view app_id) const {
  const bool is_id = app_id == "*" || id == "*" || app_id == id;
  return is_id && matches_pattern(program, program_name);
}

Rules Rules::parse(std::string_view text, std::string_view filename, Diagnostics& out) {
  return RulesParser(filename, out).run(text);
}

Rules Rules::built_in() {
  Diagnostics none;
  return parse("use os udp_connect *:53", "built-in", none);
}

Rules Rules::load(const std::string& path, bool must_exist, Diagnostics& out) {
  const auto text = read_file(path, kMaxBytes);
  if (text) return parse(*text, path, out);
  const int code = text.error().code;
  const bool is_missing = code == ENOENT || code == ENOTDIR;
  if (is_missing && !must_exist) return built_in();
  out.push_back(
      {Severity::kWarning, fmt::format("{}: cannot read the rules file: {}; no rule applies", path,
                                       std::strerror(code))});
  return {};
}

std::optional<Rules> Rules::with_first(std::string_view line, Diagnostics& out) const {
  const size_t before = out.size();
  const Rules added = parse(line, "added rule", out);
  if (out.size() != before || added.blocks_.size() != 1 || added.blocks_[0].uses.size() != 1)
    return std::nullopt;
  Rules all = *this;
  // Only one block applies to a process; one for all programs is for those that have none.
  const Block& last = added.blocks_[0];
  if (std::ranges::none_of(all.blocks_, [&](const Block& b) {
        return b.program == last.program && b.id == last.id;
      }))
    all.blocks_.push_back({last.program, last.id, {}, false});
  for (Block& b : all.blocks_) b.uses.insert(b.uses.begin(), last.uses[0]);
  return all;
}

Transport Rules::lookup(std::string_view program, std::string_view app_id, Role role,
                        const Endpoint& local, const Endpoint& remote) const {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  const auto block =
      std::ranges::find_if(blocks_, [&](const Block& b) { return b.is_for(name, app_id); });
  if (block == blocks_.end()) return Transport::kVireo;
  const bool remote_first = is_remote_first(role);
  const Endpoint& first = remote_first ? remote : local;
  const Endpoint& second = remote_first ? local : remote;
  for (const Use& u : block->uses)
    if (u.role == role && u.first.fits(first) && (!u.second || u.second->fits(second)))
      return u.transport;
  return Transport::kVireo;
}

size_t Rules::size() const {
  size_t n = 0;
  for (const Block& b : blocks_) n += b.uses.size();
  return n;
}

}  // namespace vireo
