// libFuzzer's entry for fuzz::npy.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets_data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::npy({reinterpret_cast<const char*>(data), size});
  return 0;
}
