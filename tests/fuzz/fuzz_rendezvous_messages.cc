// libFuzzer's entry for fuzz::rendezvous_messages.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::rendezvous_messages({reinterpret_cast<const char*>(data), size});
  return 0;
}
