#include "tools/settings_doc/manual.h"

#include <fmt/format.h>

#include "config/settings.h"

namespace vireo {
namespace {

/// Escapes text for troff: backslashes, literal minus signs, and a control character at the start.
std::string troff(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

/// Lists the settings that are used, or those that are only accepted, with headings.
void troff_settings(std::string& out, bool used) {
  std::string_view section;
  for (const auto& r : setting_rows()) {
    if (r.is_used != used) continue;
    if (r.section != section) out += fmt::format(".SS {}\n", troff(section = r.section));
    out += fmt::format(".TP\n.B {}\n{}\n", troff(r.env), troff(r.doc));
    if (!used) {
      out += fmt::format(".I Here:\n{}\n", troff(r.meaning));
      continue;
    }
    const std::string value = r.default_text.empty() ? "empty" : r.default_text;
    out += fmt::format(".br\n{}\n",
                       troff(fmt::format("{}: {}. Default: {}.", r.type, r.range, value)));
  }
}

std::string names_of(const Profile& p) {
  std::string out;
  for (const auto n : p.names) out.append(out.empty() ? "" : ", ").append(n);
  return out;
}

/// Escapes the bars in a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool names_field(std::string_view source, std::string_view field) {
  for (size_t at = source.find(field); at != source.npos; at = source.find(field, at + 1)) {
    const size_t end = at + field.size();
    const bool ends = end == source.size() || !is_word(source[end]);
    const bool is_member = at > 0 && (source[at - 1] == '.' || source[at - 1] == '>');
    if (ends && is_member) return true;
  }
  return false;
}

}  // namespace

std::string manual_page() {
  std::string out =
      R"(.\" Written by settings_doc from config/settings.def.
.TH VIREO 7 "" "Vireo" "Vireo"
.SH NAME
vireo \- kernel\-bypass TCP and UDP for unmodified programs
.SH SYNOPSIS
.B VMA_SPEC=latency LD_PRELOAD=libvireo.so
.I program
.SH DESCRIPTION
Preloaded,
.B libvireo.so
carries the program's TCP and UDP sockets over its own protocol stack and a device queue that it polls itself.
What it cannot carry stays on the kernel's socket.
It is configured by environment variables, read once when the program starts; it takes those of libvma under their names.
.SH SETTINGS
A number of bytes may end in k, m or g (powers of 1024).
A time may end in ns, us, ms, s, m or h; a bare number is in the unit given below.
A switch is 0 or 1, also no or yes, false or true, off or on.
Words are known in letters of either case, and by libvma's number, given in parentheses.
An empty value counts as not set, except for text and lists.
.PP
A name that is not known, and a value that is not understood or out of range, cost one warning line each;
the name is ignored, and the setting keeps the value it would have had.
A variable that is set wins over the profile, and the profile over the default.
)";
  troff_settings(out, true);
  out += ".SH OLDER NAMES\n";
  for (const auto& a : setting_aliases())
    out += fmt::format(".TP\n.B {}\nNow {}.\n", troff(a.env), troff(a.now));
  out += ".SH ACCEPTED FROM LIBVMA\nThese are understood and checked, and change nothing.\n";
  troff_settings(out, false);

  out += ".SH PROFILES\nThe values of\n.BR VMA_SPEC ,\nand what each sets.\n";
  for (const auto& p : profiles()) {
    out += fmt::format(".TP\n.B {}\n{}\n", troff(names_of(p)), troff(p.doc));
    for (const auto& [env, text] : p.values)
      out += fmt::format(".br\n{}\n", troff(fmt::format("{}={}", env, text)));
  }

  out += R"(.SH RULES FILE
Which sockets are carried, by program, role, address and port. One statement a line;
.B #
begins a comment.
.TP
.BI application\-id " program id"
The lines below, up to the next, are for processes whose name fits
.I program
(*, ? and [a\-z] as in the shell) and whose VMA_APPLICATION_ID is
.IR id ;
* stands for any.
The first that fits a process decides alone.
Lines before any are for every program.
.TP
.BI use " transport role address:ports" [: address:ports ]
.I transport
is
.B vireo
(also
.BR vma ", " * )
to carry, or
.B os
to leave to the kernel.
.I role
is tcp_server or udp_receiver, with the local address;
udp_sender, with the remote address;
tcp_client or udp_connect, with the remote address and then, if wanted, the local one.
.I address
is *, an IPv4 address with or without a prefix length (10.0.0.0/8),
or an IPv6 address in brackets ([2001:db8::]/32 or [2001:db8::/32]).
.I ports
is *, a port, or two with a hyphen between.
The first line that fits wins; if none does, the socket is carried.
.TP
.B log
[\fBdestination\fR stderr | syslog | file \fIname\fR] [\fBmin\-level\fR 1\-9]
.PP
A line in error is reported with its file, line and column, and the others apply.
.SH FILES
.TP
.I /etc/libvma.conf
The rules file, unless VMA_CONFIG_FILE names another.
If it is missing, everything is carried but DNS (use os udp_connect *:53).
.SH SEE ALSO
.BR ld.so (8),
.BR tcp (7),
.BR udp (7)
)";
  return out;
}

std::string manual_markdown() {
  std::string out = "# Settings\n";
  std::string_view section;
  for (const auto& r : setting_rows()) {
    if (r.section != section) {
      section = r.section;
      out += fmt::format(
          "\n## {}\n\n| Name | Default | Values | What it does |\n|---|---|---|---|\n", section);
    }
    const std::string meaning = r.is_used ? "" : fmt::format(" *Accepted:* {}", r.meaning);
    out += fmt::format("| `{}` | {} | {}: {} | {}{} |\n", r.env,
                       r.default_text.empty() ? "" : fmt::format("`{}`", r.default_text), r.type,
                       cell(r.range), cell(r.doc), cell(meaning));
  }
  out += "\n# Profiles\n\n| `VMA_SPEC` | What for | Sets |\n|---|---|---|\n";
  for (const auto& p : profiles()) {
    std::string sets;
    for (const auto& [env, text] : p.values)
      sets += fmt::format("{}`{}={}`", sets.empty() ? "" : ", ", env, text);
    out += fmt::format("| {} | {} | {} |\n", names_of(p), cell(p.doc), sets);
  }
  return out;
}

std::vector<std::string> unread_settings(std::span<const std::string> sources) {
  std::vector<std::string> out;
  for (const auto& r : setting_rows()) {
    // The parser itself handles these two.
    const bool is_of_parser = r.field == "spec" || r.field == "select_poll_os_force";
    if (!r.is_used || is_of_parser) continue;
    bool is_read = false;
    for (const auto& s : sources) is_read = is_read || names_field(s, r.field);
    if (!is_read) out.push_back(fmt::format("{} ({})", r.env, r.field));
  }
  return out;
}

}  // namespace vireo
