// Uses the installed library the way a training program would start: draws numbers and lays out an array.
#include <array>
#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/device/dims.h"
#include "runtime/device/view.h"

int main() {
  try {
    std::array<float, 6> values{};
    const dtrain::Dims shape{2, 3};
    const dtrain::View view{values.data(), dtrain::DType::f32, shape, dtrain::contiguous_strides(shape)};
    if (!view.is_contiguous() || view.numel() != 6) return 1;
    dtrain::Dims full = dtrain::Dims::filled(dtrain::kMaxRank, 1);
    try {
      full.push_back(1);
      return 1;
    } catch (const dtrain::UsageError&) {  // errors cross the library's boundary as their own type
    }
    std::printf("consumer: %s is fine\n", shape.to_string().c_str());
  } catch (const dtrain::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
