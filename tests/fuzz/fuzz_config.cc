// libFuzzer's entry for fuzz::config.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::config({reinterpret_cast<const char*>(data), size});
  return 0;
}
