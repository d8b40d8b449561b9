// libFuzzer's entry, built once for each target: DTRAIN_FUZZ_TARGET is one function of targets.h,
// targets_data.h, targets_files.h, targets_hosts.h, targets_pictures.h, targets_server.h or
// targets_torch_store.h.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"
#include "tests/fuzz/targets_data.h"
#include "tests/fuzz/targets_files.h"
#include "tests/fuzz/targets_hosts.h"
#include "tests/fuzz/targets_pictures.h"
#include "tests/fuzz/targets_server.h"
#include "tests/fuzz/targets_torch_store.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrain::fuzz::DTRAIN_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
