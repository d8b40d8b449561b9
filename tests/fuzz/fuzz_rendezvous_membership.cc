// libFuzzer's entry for fuzz::rendezvous_membership.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::rendezvous_membership({reinterpret_cast<const char*>(data), size});
  return 0;
}
