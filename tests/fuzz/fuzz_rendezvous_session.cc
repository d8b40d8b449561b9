// libFuzzer's entry for fuzz::rendezvous_session.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::rendezvous_session({reinterpret_cast<const char*>(data), size});
  return 0;
}
