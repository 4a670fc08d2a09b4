// From the text of a packet script to its events.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "tests/script/script.h"

namespace vireo::script {
namespace {

std::string trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return std::string(s);
}

bool starts_with_number(std::string_view s) {
  return !s.empty() && (std::isdigit(static_cast<unsigned char>(s[0])) || s[0] == '.');
}

/// A cursor over one event; every taker returns false at what it did not expect.
class Cursor {
 public:
  explicit Cursor(std::string_view s) : s_(s) {}

  void skip() {
    while (!s_.empty() && std::isspace(static_cast<unsigned char>(s_.front()))) s_.remove_prefix(1);
  }
  bool done() {
    skip();
    return s_.empty();
  }
  bool take(std::string_view what) {
    skip();
    if (!s_.starts_with(what)) return false;
    s_.remove_prefix(what.size());
    return true;
  }
  /// A word of letters, digits and underscores.
  bool word(std::string& out) {
    skip();
    size_t n = 0;
    while (n < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[n])) || s_[n] == '_')) ++n;
    out = std::string(s_.substr(0, n));
    s_.remove_prefix(n);
    return n > 0;
  }
  /// Takes `what` only as a whole word.
  bool keyword(std::string_view what) {
    skip();
    if (!s_.starts_with(what)) return false;
    if (s_.size() > what.size()) {
      const auto c = static_cast<unsigned char>(s_[what.size()]);
      if (std::isalnum(c) || c == '_') return false;
    }
    s_.remove_prefix(what.size());
    return true;
  }
  bool number(uint32_t& out) {
    skip();
    const auto [end, ec] = std::from_chars(s_.data(), s_.data() + s_.size(), out);
    if (ec != std::errc()) return false;
    s_.remove_prefix(static_cast<size_t>(end - s_.data()));
    return true;
  }
  bool number16(uint16_t& out) {
    uint32_t v = 0;
    if (!number(v) || v > 65535) return false;
    out = static_cast<uint16_t>(v);
    return true;
  }
  /// Seconds with a fraction, exact to the nanosecond.
  bool seconds(Duration& out) {
    skip();
    size_t n = 0;
    int64_t whole = 0, fraction = 0, scale = 1'000'000'000;
    while (n < s_.size() && std::isdigit(static_cast<unsigned char>(s_[n])))
      whole = whole * 10 + (s_[n++] - '0');
    if (n < s_.size() && s_[n] == '.' && !s_.substr(n).starts_with("..")) {
      ++n;
      for (; n < s_.size() && std::isdigit(static_cast<unsigned char>(s_[n])); ++n) {
        scale /= 10;
        fraction += (s_[n] - '0') * scale;
      }
    }
    if (n == 0) return false;
    s_.remove_prefix(n);
    out = Duration::ns(whole * 1'000'000'000 + fraction);
    return true;
  }
  /// Everything up to `end`, which is taken too.
  bool until(std::string_view end, std::string& out) {
    const size_t at = s_.find(end);
    if (at == std::string_view::npos) return false;
    out = trim(s_.substr(0, at));
    s_.remove_prefix(at + end.size());
    return true;
  }
  std::string_view rest() const { return s_; }

 private:
  std::string_view s_;
};

bool parse_when(Cursor& c, When& w) {
  if (c.take("*")) {
    w.kind = When::Kind::kAny;
    return true;
  }
  if (c.take("+")) w.kind = When::Kind::kRelative;
  if (!c.seconds(w.from)) return false;
  w.to = w.from;
  if (c.take("~")) {
    c.take("+");
    return c.seconds(w.to);
  }
  if (c.take("...")) {
    w.blocking = true;
    c.take("+");
    return c.seconds(w.to);
  }
  return true;
}

bool parse_option(const std::string& text, Option& o) {
  Cursor c(text);
  const auto values = [&c, &o](unsigned n) {
    o.values.resize(n);
    for (uint32_t& v : o.values)
      if (!c.number(v)) return false;
    return c.done();
  };
  if (c.keyword("nop")) return o.kind = Option::Kind::kNop, c.done();
  if (c.keyword("eol")) return o.kind = Option::Kind::kEnd, c.done();
  if (c.keyword("mss")) return o.kind = Option::Kind::kMss, values(1);
  if (c.keyword("wscale")) return o.kind = Option::Kind::kWindowScale, values(1);
  if (c.keyword("sackOK")) return o.kind = Option::Kind::kSackPermitted, c.done();
  if (c.keyword("TS")) {
    o.kind = Option::Kind::kTimestamps;
    o.values.resize(2);
    return c.keyword("val") && c.number(o.values[0]) && c.keyword("ecr") && c.number(o.values[1]);
  }
  if (c.keyword("sack")) {
    o.kind = Option::Kind::kSack;
    uint32_t left = 0, right = 0;
    while (c.number(left)) {
      if (!c.take(":") || !c.number(right)) return false;
      o.values.push_back(left);
      o.values.push_back(right);
    }
    return !o.values.empty() && c.done();
  }
  if (c.keyword("raw")) {
    o.kind = Option::Kind::kRaw;
    uint32_t v = 0;
    while (c.number(v)) o.values.push_back(v);
    return !o.values.empty() && c.done();
  }
  return false;
}

bool parse_options(const std::string& list, PacketSpec& p) {
  if (list == "...") return p.any_options = true;
  std::stringstream in(list);
  std::string one;
  while (std::getline(in, one, ',')) {
    Option o;
    if (!parse_option(trim(one), o)) return false;
    p.options.push_back(o);
  }
  return true;
}

bool parse_flags(Cursor& c, PacketSpec& p) {
  static constexpr std::string_view kLetters = "FSRP.UEW";  // bit order of the header
  c.skip();
  bool any = false;
  while (!c.rest().empty() && !std::isspace(static_cast<unsigned char>(c.rest().front()))) {
    if (c.take("-")) {
      any = true;
      continue;
    }
    const size_t bit = kLetters.find(c.rest().front());
    if (bit == std::string_view::npos) return false;
    p.flags = static_cast<uint8_t>(p.flags | 1U << bit);
    any = true;
    c.take(c.rest().substr(0, 1));
  }
  return any;
}

bool parse_range(Cursor& c, uint32_t& seq, uint32_t& length) {
  uint32_t end = 0;
  return c.number(seq) && c.take(":") && c.number(end) && c.take("(") && c.number(length) &&
         c.take(")") && end == seq + length;
}

bool parse_ecn(Cursor& c, PacketSpec& p) {
  if (!c.take("[")) return true;
  if (c.take("noecn]"))
    p.ecn = EcnBits::kNotEct;
  else if (c.take("ect0]"))
    p.ecn = EcnBits::kEct0;
  else if (c.take("ect1]"))
    p.ecn = EcnBits::kEct1;
  else if (c.take("ce]"))
    p.ecn = EcnBits::kCe;
  else
    return false;
  return true;
}

bool parse_icmp(Cursor& c, IcmpSpec& i) {
  std::string type;
  uint32_t length = 0;
  if (!c.word(type) || !c.word(i.code)) return false;
  if (c.keyword("mtu") && !c.number(i.mtu)) return false;
  return c.take("[") && parse_range(c, i.quoted_seq, length) && c.take("]") && c.done();
}

bool parse_packet(Cursor& c, PacketSpec& p) {
  if (!parse_ecn(c, p) || !parse_flags(c, p) || !parse_range(c, p.seq, p.length)) return false;
  while (!c.done()) {
    uint32_t v = 0;
    if (c.keyword("ack")) {
      if (!c.number(v)) return false;
      p.ack = v;
    } else if (c.keyword("win")) {
      uint16_t w = 0;
      if (!c.number16(w)) return false;
      p.window = w;
    } else if (c.keyword("urg")) {
      if (!c.number16(p.urgent)) return false;
    } else if (c.take("<")) {
      std::string list;
      if (!c.until(">", list) || !parse_options(list, p)) return false;
    } else {
      return false;
    }
  }
  return true;
}

/// Splits at commas outside of brackets.
std::vector<std::string> split_arguments(const std::string& s) {
  std::vector<std::string> out;
  std::string one;
  int depth = 0;
  for (const char ch : s) {
    if (ch == '[' || ch == '{' || ch == '(') ++depth;
    if (ch == ']' || ch == '}' || ch == ')') --depth;
    if (ch == ',' && depth == 0) {
      out.push_back(trim(one));
      one.clear();
    } else {
      one += ch;
    }
  }
  if (const std::string last = trim(one); !last.empty() || !out.empty()) out.push_back(last);
  return out;
}

bool parse_call(Cursor& c, Call& call) {
  if (!c.word(call.name) || !c.take("(")) return false;
  const std::string_view rest = c.rest();
  int depth = 1;
  size_t at = 0;
  for (; at < rest.size() && depth > 0; ++at) {
    if (rest[at] == '(') ++depth;
    if (rest[at] == ')') --depth;
  }
  if (depth != 0) return false;
  call.arguments = split_arguments(std::string(rest.substr(0, at - 1)));
  Cursor after(rest.substr(at));
  if (!after.take("=")) return false;
  std::istringstream words{std::string(after.rest())};
  words >> call.result >> call.error;
  return !call.result.empty();
}

bool parse_assertions(const std::string& body, std::vector<Assertion>& out) {
  std::istringstream lines(body);
  std::string one;
  while (std::getline(lines, one)) {
    Cursor c(one);
    if (c.done()) continue;
    Assertion a;
    if (!c.keyword("assert")) return false;
    c.take("(");
    if (!c.word(a.left)) return false;
    bool known = false;
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!c.take(op)) continue;
      a.op = op;
      known = true;
      break;
    }
    if (!known || !c.word(a.right)) return false;
    out.push_back(a);
  }
  return !out.empty();
}

bool parse_event(const std::string& text, Event& e) {
  e.text = text;
  Cursor c(text);
  if (!parse_when(c, e.when)) return false;
  if (c.take("<")) {
    if (c.keyword("icmp")) {
      IcmpSpec i;
      if (!parse_icmp(c, i)) return false;
      e.action = i;
      return true;
    }
    PacketSpec p;
    p.inbound = true;
    if (!parse_packet(c, p)) return false;
    e.action = p;
    return true;
  }
  if (c.take(">")) {
    PacketSpec p;
    if (!parse_packet(c, p)) return false;
    e.action = p;
    return true;
  }
  if (c.take("%{")) {
    std::string body;
    std::vector<Assertion> a;
    if (!c.until("}%", body) || !parse_assertions(body, a)) return false;
    e.action = a;
    return true;
  }
  Call call;
  if (!parse_call(c, call)) return false;
  e.action = call;
  return true;
}

/// `sysctl -q a=b c=d`; other commands set up a host that is not there.
void parse_command(const std::string& command, std::vector<Setting>& out) {
  std::istringstream words(command);
  std::string w;
  words >> w;
  if (w != "sysctl") return;
  while (words >> w) {
    const size_t equals = w.find('=');
    if (equals == std::string::npos) continue;
    Setting s{w.substr(0, equals), w.substr(equals + 1)};
    if (s.value.starts_with('"'))  // "4096 87380 6291456"
      while (!s.value.ends_with('"') && words >> w) s.value += " " + w;
    std::erase(s.value, '"');
    out.push_back(s);
  }
}

/// The text without comments; lines stay where they are.
std::string without_comments(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0 ||
        (text[i] == '#' && (i == 0 || text[i - 1] == '\n' || text[i - 1] == ' '))) {
      while (i < text.size() && text[i] != '\n') ++i;
      if (i < text.size()) out += '\n';
    } else if (text.compare(i, 2, "/*") == 0) {
      for (; i < text.size() && text.compare(i, 2, "*/") != 0; ++i)
        if (text[i] == '\n') out += '\n';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_option(const std::string& line, Script& out) {
  static constexpr std::string_view kTolerance = "--tolerance_usecs=";
  if (line.starts_with(kTolerance)) {
    out.tolerance = Duration::us(std::atoll(line.c_str() + kTolerance.size()));
    return true;
  }
  return line.starts_with("--");
}

}  // namespace

void parse_heading(const std::string& text, Script& out) {
  std::string first = text.substr(0, text.find('\n'));
  if (first.starts_with("//")) first = trim(first.substr(2));
  const size_t colon = first.find(':');
  out.clause = trim(first.substr(0, colon));
  out.title = colon == std::string::npos ? "" : trim(first.substr(colon + 1));
}

std::string parse(const std::string& path, const std::string& text, Script& out) {
  out.path = path;
  parse_heading(text, out);
  std::istringstream lines(without_comments(text));
  std::string line;
  unsigned number = 0;
  const auto wrong = [&](unsigned at, const std::string& what) {
    return path + ":" + std::to_string(at) + ": not understood: " + what;
  };
  while (std::getline(lines, line)) {
    ++number;
    std::string t = trim(line);
    if (t.empty() || is_option(t, out)) continue;
    const unsigned at = number;
    const auto join = [&](std::string_view end) {
      while (t.find(end, t.find(end.substr(0, 1)) + 1) == std::string::npos &&
             std::getline(lines, line)) {
        ++number;
        t += "\n" + line;
      }
    };
    const size_t tick = t.find('`');
    if (tick != std::string::npos) {
      join("`");
      std::string command = t.substr(tick + 1, t.rfind('`') - tick - 1);
      std::replace(command.begin(), command.end(), '\n', ' ');
      parse_command(command, out.settings);
      continue;
    }
    if (t.find("%{") != std::string::npos && t.find("}%") == std::string::npos) {
      while (std::getline(lines, line)) {
        ++number;
        t += "\n" + line;
        if (line.find("}%") != std::string::npos) break;
      }
    }
    if (!starts_with_number(t) && t[0] != '+' && t[0] != '*') return wrong(at, t);
    Event e;
    e.line = at;
    if (!parse_event(t, e)) return wrong(at, t);
    out.events.push_back(std::move(e));
  }
  return "";
}

std::string to_string(const PacketSpec& p) {
  std::string s;
  switch (p.ecn) {
    case EcnBits::kAny:
      break;
    case EcnBits::kNotEct:
      s += "[noecn] ";
      break;
    case EcnBits::kEct0:
      s += "[ect0] ";
      break;
    case EcnBits::kEct1:
      s += "[ect1] ";
      break;
    case EcnBits::kCe:
      s += "[ce] ";
      break;
  }
  static constexpr char kLetters[] = "FSRP.UEW";
  for (unsigned bit : {1U, 0U, 2U, 3U, 5U, 6U, 7U, 4U})  // SFRPUEW.
    if ((p.flags >> bit & 1U) != 0) s += kLetters[bit];
  if (p.flags == 0) s += '-';
  s += " " + std::to_string(p.seq) + ":" + std::to_string(p.seq + p.length) + "(" +
       std::to_string(p.length) + ")";
  if (p.ack) s += " ack " + std::to_string(*p.ack);
  if (p.window) s += " win " + std::to_string(*p.window);
  if (p.urgent != 0) s += " urg " + std::to_string(p.urgent);
  if (p.any_options) return s + " <...>";
  if (p.options.empty()) return s;
  s += " <";
  for (size_t i = 0; i < p.options.size(); ++i) {
    const Option& o = p.options[i];
    const auto v = [&o](size_t n) { return std::to_string(o.values[n]); };
    if (i > 0) s += ",";
    switch (o.kind) {
      case Option::Kind::kNop:
        s += "nop";
        break;
      case Option::Kind::kEnd:
        s += "eol";
        break;
      case Option::Kind::kMss:
        s += "mss " + v(0);
        break;
      case Option::Kind::kWindowScale:
        s += "wscale " + v(0);
        break;
      case Option::Kind::kSackPermitted:
        s += "sackOK";
        break;
      case Option::Kind::kSack:
        s += "sack";
        for (size_t n = 0; n + 1 < o.values.size(); n += 2) s += " " + v(n) + ":" + v(n + 1);
        break;
      case Option::Kind::kTimestamps:
        s += "TS val " + v(0) + " ecr " + v(1);
        break;
      case Option::Kind::kRaw:
        s += "raw";
        for (size_t n = 0; n < o.values.size(); ++n) s += " " + v(n);
        break;
    }
  }
  return s + ">";
}

}  // namespace vireo::script
