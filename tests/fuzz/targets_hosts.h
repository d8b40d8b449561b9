// What --hosts reads, as targets.h has it.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// A list, a file of hosts, a line of a proxy's and a request: each is taken, or refused with UsageError.
/// Hosts that are taken have names without spaces that no program takes for an option, each once; what is
/// taken comes back from its own text.
void hosts(std::string_view input);

}  // namespace dtrain::fuzz
