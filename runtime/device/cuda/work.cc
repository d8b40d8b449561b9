#include "runtime/device/cuda/work.h"

#if DTRAIN_EMULATED_CUDA
#include <emulated_work.h>
#endif

namespace dtrain::cuda {
namespace {

#if DTRAIN_EMULATED_CUDA
Arithmetic arithmetic_of(emulation::Arithmetic arithmetic) {
  switch (arithmetic) {
    case emulation::Arithmetic::none:
      return Arithmetic::none;
    case emulation::Arithmetic::f64:
      return Arithmetic::f64;
    case emulation::Arithmetic::f32:
      return Arithmetic::f32;
    case emulation::Arithmetic::tf32:
      return Arithmetic::tf32;
    case emulation::Arithmetic::bf16:
      return Arithmetic::bf16;
    case emulation::Arithmetic::f16:
      return Arithmetic::f16;
  }
  return Arithmetic::none;
}

bool note(bool on) { return emulation::note_work(on); }

std::vector<DeviceWork> take() {
  std::vector<DeviceWork> result;
  for (emulation::Work& work : emulation::take_work()) {
    result.push_back({std::move(work.name), static_cast<double>(work.read_bytes),
                      static_cast<double>(work.written_bytes), static_cast<double>(work.bus_bytes),
                      work.operations, arithmetic_of(work.arithmetic)});
  }
  return result;
}

WorkCounts counts() { return emulation::current_counts(); }
#else
bool note(bool) { return false; }
std::vector<DeviceWork> take() { return {}; }
WorkCounts counts() { return {}; }
#endif

}  // namespace

const DeviceWorkPlugin& work_part() {
  static constexpr DeviceWorkPlugin kPart{note, take, counts};
  return kPart;
}

}  // namespace dtrain::cuda
