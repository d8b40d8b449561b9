// What a host's network interface has sent, for algorithms whose point is to send less.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain::bench {

/// Bytes that `interface` of this network namespace has sent so far, with all headers. Throws when there is
/// no such interface.
std::uint64_t bytes_sent(const std::string& interface);

}  // namespace dtrain::bench
