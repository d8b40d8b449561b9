// Launching kernels.
#include "emulation/cudart/enter.h"
#include "emulation/include/emulated_cuda.h"

namespace emulation {
namespace {

constexpr std::size_t kMostShared = 48 << 10;

bool fits_hardware(dim3 grid, dim3 block) {
  const std::uint64_t threads = static_cast<std::uint64_t>(block.x) * block.y * block.z;
  return grid.x != 0 && grid.y != 0 && grid.z != 0 && threads != 0 && grid.x <= 0x7FFFFFFFU &&
         grid.y <= 65535 && grid.z <= 65535 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
         threads <= 1024;
}

// Nothing asked for: the kernel itself is wrong.
cudaError_t error_of(std::string_view fault) {
  if (fault.empty()) return cudaErrorLaunchFailure;
  if (fault == "ecc") return cudaErrorECCUncorrectable;
  return fault == "lost" ? cudaErrorUnknown : cudaErrorIllegalAddress;
}

void run(const GridCall& call, int device) {
  Machine& machine = Machine::get();
  const std::string_view asked = machine.fault(Place::launch, device);
  const Options& options = machine.options();
  const bool noted = machine.work().is_on();
  const std::string fault = asked.empty() ? machine.grids().run(call, {noted, options.races, options.twice})
                                          : "asked for: " + std::string(asked);
  if (fault.empty()) {
    const Traffic traffic = machine.grids().traffic();
    if (noted) machine.work().add({call.name, traffic.read_bytes, traffic.written_bytes});
    return;
  }
  const auto held = machine.lock();
  machine.lose(device, error_of(asked), std::string("kernel ") + call.name + ": " + fault);
}

cudaError_t try_launch(GridCall call, cudaStream_t handle) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  if (const cudaError_t error = check_configuration(call); error != cudaSuccess) return error;
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture && stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  ++machine.counts().launches;
  machine.queue(stream, kernel_operation(std::move(call), stream->device));
  return cudaSuccess;
}

}  // namespace

cudaError_t launch(const char* name, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                   cudaStream_t stream, std::function<void()> thread) {
  return note(try_launch({grid, block, dynamic_shared_bytes, std::move(thread), name}, stream));
}

cudaError_t check_configuration(const GridCall& call) {
  if (!fits_hardware(call.grid, call.block)) return cudaErrorInvalidConfiguration;
  return call.dynamic_shared_bytes > kMostShared ? cudaErrorInvalidValue : cudaSuccess;
}

Operation kernel_operation(GridCall call, int device) {
  const std::string name = call.name;
  return at_once(Kind::kernel, name, [device, kept = std::move(call)] { run(kept, device); });
}

}  // namespace emulation
