// What the functions of the CUDA runtime share.
#pragma once

#include "emulation/machine/machine.h"

namespace emulation {

/// How a call begins: which error it must return at once (no GPU, a lost context), if any.
cudaError_t enter() noexcept;

/// For calls that may not be made while this thread records a stream (allocating, freeing, waiting, asking):
/// ends the recordings that forbid it and returns the error, or cudaSuccess. With the lock held.
cudaError_t forbid_while_capturing(Machine& machine);

/// How the calling thread takes recordings (cudaThreadExchangeStreamCaptureMode).
cudaStreamCaptureMode& capture_mode() noexcept;

/// What is wrong with a launch whatever its stream.
cudaError_t check_configuration(const GridCall& call);
/// A run of a kernel on that GPU.
Operation kernel_operation(GridCall call, int device);

/// Waits until all that the GPU was given is done. Returns its error.
cudaError_t synchronize(Machine& machine, Machine::Lock& lock, int device);

}  // namespace emulation
