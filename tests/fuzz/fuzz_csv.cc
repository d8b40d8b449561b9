// libFuzzer's entry for fuzz::csv.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets_data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::csv({reinterpret_cast<const char*>(data), size});
  return 0;
}
