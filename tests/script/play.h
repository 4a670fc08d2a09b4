// Plays a script inside of a GoogleTest test, under all six initial sequence numbers.
// Owner: the test. Thread: one.
#pragma once

#include <string>

namespace vireo::script {

/// The script `name` of tests/script/cases. One that is in KNOWN_FAILURES skips the test instead.
void play(const std::string& name);
/// The script given as text.
void play_text(const std::string& text);

}  // namespace vireo::script
