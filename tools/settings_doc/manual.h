// Generates the settings' manual from the table, as a troff page or Markdown; and finds settings
// that no code reads. Owner: none (functions). Thread: any. Source: man-pages(7), groff_man(7).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vireo {

/// The page vireo(7).
std::string manual_page();
/// The same settings as Markdown tables.
std::string manual_markdown();

/// The settings marked as used whose field (`.field`) occurs in none of `sources`, the texts of the
/// source files. A common field name may hide an unread setting: this finds forgotten ones, it
/// proves nothing.
std::vector<std::string> unread_settings(std::span<const std::string> sources);

}  // namespace vireo
