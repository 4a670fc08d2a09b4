// The manual of the settings as text, from the table: a troff page and Markdown; and which settings
// nobody reads. Owner: none (functions). Thread: any. Source: man-pages(7), groff_man(7).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vireo {

/// vireo(7).
std::string manual_page();
/// The same settings as tables for a web page.
std::string manual_markdown();

/// The settings said to be used whose field is named (`.field`) in none of `sources`, the texts of
/// the source files. A field with a common name may hide: this finds the forgotten, it proves
/// nothing.
std::vector<std::string> unread_settings(std::span<const std::string> sources);

}  // namespace vireo
