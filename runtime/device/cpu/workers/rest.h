// Where threads compute that are not for_chunks()'s.
#pragma once

namespace dtrain::cpu {

/// Call before a primitive of the math library that computes with threads of its own: workers of this thread
/// that spin for the next chunk sleep until there is one, so that those threads have their cores.
void rest_workers() noexcept;

}  // namespace dtrain::cpu
