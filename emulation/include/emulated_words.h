// What the lanes of a warp exchange.
#pragma once

#include <array>
#include <cstdint>

namespace emulation::device {

/// What a lane brings to an exchange, at most.
using Words = std::array<std::uint64_t, 6>;

}  // namespace emulation::device
