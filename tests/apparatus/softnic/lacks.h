// What the devices are told to be without, as many real ones are: SOFTNIC_LACKS, words separated by
// commas. Owner: process. Thread: any (setup calls only). The answers are those of the kernel's
// drivers: README.md has the table.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

namespace vireo::softnic {

bool lacks(std::string_view what);

/// errno with which such a device refuses the rule; 0: it does not.
int refusal_of_rule(const ibv_flow_attr& attr);

}  // namespace vireo::softnic
