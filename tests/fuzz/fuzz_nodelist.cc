// libFuzzer's entry for fuzz::nodelist.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::nodelist({reinterpret_cast<const char*>(data), size});
  return 0;
}
