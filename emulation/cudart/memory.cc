// Allocating, freeing and copying.
#include <cstring>
#include <string>

#include "emulation/cudart/enter.h"

namespace emulation {
namespace {

cudaError_t allocate(void** memory, MemoryKind kind, std::size_t bytes) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  if (memory == nullptr) return cudaErrorInvalidValue;
  Machine& machine = Machine::get();
  {
    const auto lock = machine.lock();
    if (const cudaError_t error = forbid_while_capturing(machine); error != cudaSuccess) return error;
  }
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (kind == MemoryKind::device && !machine.fault(Place::memory, current_device(), bytes).empty()) {
    return cudaErrorMemoryAllocation;
  }
  ++(kind == MemoryKind::pinned ? machine.counts().pinned_allocations : machine.counts().allocations);
  *memory = machine.memory().allocate(kind, current_device(), bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// Freeing waits for all that may use the memory.
cudaError_t release(void* memory, bool host) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  if (memory == nullptr) return cudaSuccess;
  Machine& machine = Machine::get();
  auto lock = machine.lock();
  if (const cudaError_t error = forbid_while_capturing(machine); error != cudaSuccess) return error;
  const auto piece = machine.memory().find(memory);
  if (!piece || piece->data != memory || piece->adopted || (piece->kind == MemoryKind::pinned) != host)
    return cudaErrorInvalidValue;
  if (const cudaError_t error = synchronize(machine, lock, piece->device); error != cudaSuccess) return error;
  std::string damage;
  machine.memory().release(memory, damage);
  if (!damage.empty()) machine.lose(piece->device, cudaErrorIllegalAddress, damage);
  return cudaSuccess;
}

bool fits(const std::optional<Piece>& piece, const void* at, std::size_t bytes) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - piece->data);
  return bytes <= piece->bytes - offset;
}

bool on_device(const std::optional<Piece>& piece) { return piece && piece->kind != MemoryKind::pinned; }

// What the arguments of a copy have wrong.
cudaError_t check_copy(const std::optional<Piece>& to, void* to_at, const std::optional<Piece>& from,
                       const void* from_at, std::size_t bytes, cudaMemcpyKind kind) {
  if (to && !fits(to, to_at, bytes)) return cudaErrorInvalidValue;
  if (from && !fits(from, from_at, bytes)) return cudaErrorInvalidValue;
  const bool managed = (to && to->kind == MemoryKind::managed) || (from && from->kind == MemoryKind::managed);
  if (kind == cudaMemcpyDefault || managed) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  // Pinned memory is mapped into every GPU.
  if (to_device ? !to : on_device(to)) return cudaErrorInvalidValue;
  if (from_device ? !from : on_device(from)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

/// Within GPUs it is read and written; else it goes over the bus once.
Work work_of(const std::optional<Piece>& to, const std::optional<Piece>& from, std::size_t bytes) {
  Work work{"memcpy"};
  if (on_device(to) && on_device(from)) {
    work.read_bytes = work.written_bytes = bytes;
  } else {
    work.bus_bytes = bytes;
  }
  return work;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle,
                 bool returns_early) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  Machine& machine = Machine::get();
  const auto target = machine.memory().find(to), source = machine.memory().find(from);
  if (const cudaError_t error = check_copy(target, to, source, from, bytes, kind); error != cudaSuccess)
    return error;
  auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture && (stream->capture->invalid || !returns_early)) {
    stream->capture->invalid = true;
    return returns_early ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported;
  }
  if (!returns_early) {
    if (const cudaError_t error = forbid_while_capturing(machine); error != cudaSuccess) return error;
  }
  ++machine.counts().copies;
  machine.counts().copied_bytes += bytes;
  const auto noted = [&machine, work = work_of(target, source, bytes)] { machine.work().add(work); };
  if (!source && !stream->capture) {
    // The driver has taken its copy of pageable memory when the call returns.
    auto taken = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(taken->data(), from, bytes);
    machine.queue(stream, at_once(Kind::copy, "copy", [=] {
                    std::memcpy(to, taken->data(), bytes);
                    noted();
                  }));
  } else {
    machine.queue(stream, at_once(Kind::copy, "copy", [=] {
                    std::memmove(to, from, bytes);
                    noted();
                  }));
  }
  const bool waits = !returns_early || (!target && !stream->capture);
  if (!waits) return cudaSuccess;
  machine.wait(lock, stream->device, [&] { return stream->queue.empty(); });
  return machine.lost(stream->device);
}

cudaError_t fill(void* memory, int value, std::size_t bytes, cudaStream_t handle, bool returns_early) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  Machine& machine = Machine::get();
  const auto piece = machine.memory().find(memory);
  if (bytes > 0 && (!piece || !fits(piece, memory, bytes))) return cudaErrorInvalidValue;
  auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  machine.queue(stream, at_once(Kind::fill, "fill", [=, &machine] {
                  std::memset(memory, value, bytes);
                  machine.work().add({"memset", 0, bytes});
                }));
  if (returns_early) return cudaSuccess;
  machine.wait(lock, stream->device, [&] { return stream->queue.empty(); });
  return machine.lost(stream->device);
}

}  // namespace
}  // namespace emulation

using emulation::Machine;
using emulation::MemoryKind;
using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** memory, size_t bytes) {
  return note(emulation::allocate(memory, MemoryKind::device, bytes));
}

cudaError_t CUDARTAPI cudaMallocManaged(void** memory, size_t bytes, unsigned) {
  return note(emulation::allocate(memory, MemoryKind::managed, bytes));
}

cudaError_t CUDARTAPI cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return note(emulation::allocate(memory, MemoryKind::pinned, bytes));
}

cudaError_t CUDARTAPI cudaMallocHost(void** memory, size_t bytes) {
  return note(emulation::allocate(memory, MemoryKind::pinned, bytes));
}

cudaError_t CUDARTAPI cudaFree(void* memory) { return note(emulation::release(memory, false)); }
cudaError_t CUDARTAPI cudaFreeHost(void* memory) { return note(emulation::release(memory, true)); }

cudaError_t CUDARTAPI cudaHostRegister(void* memory, size_t bytes, unsigned) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (memory == nullptr || bytes == 0) return note(cudaErrorInvalidValue);
  return note(Machine::get().memory().adopt(memory, bytes) ? cudaSuccess
                                                           : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t CUDARTAPI cudaHostUnregister(void* memory) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  return note(Machine::get().memory().abandon(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  const auto piece = Machine::get().memory().find(host);
  if (!piece || piece->kind != MemoryKind::pinned) return note(cudaErrorInvalidValue);
  *device = host;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  *total = Machine::get().memory().total();
  *free = *total - Machine::get().memory().used(emulation::current_device());
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  *attributes = cudaPointerAttributes{};
  const auto piece = Machine::get().memory().find(pointer);
  attributes->type = !piece                              ? cudaMemoryTypeUnregistered
                     : piece->kind == MemoryKind::pinned ? cudaMemoryTypeHost
                     : piece->kind == MemoryKind::device ? cudaMemoryTypeDevice
                                                         : cudaMemoryTypeManaged;
  attributes->device = piece ? piece->device : -1;
  if (piece) attributes->devicePointer = const_cast<void*>(pointer);
  if (!piece || piece->kind != MemoryKind::device) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return note(emulation::copy(to, from, bytes, kind, nullptr, false));
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return note(emulation::copy(to, from, bytes, kind, stream, true));
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return note(emulation::copy(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr, false));
}

// A symbol is a variable of the program, whose address is the same for the host and the GPU.
cudaError_t CUDARTAPI cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                                         cudaMemcpyKind) {
  std::byte* const to = static_cast<std::byte*>(const_cast<void*>(symbol)) + offset;
  return note(emulation::copy(to, from, bytes, cudaMemcpyDefault, nullptr, false));
}

cudaError_t CUDARTAPI cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                           cudaMemcpyKind) {
  const std::byte* const from = static_cast<const std::byte*>(symbol) + offset;
  return note(emulation::copy(to, from, bytes, cudaMemcpyDefault, nullptr, false));
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                          cudaStream_t stream) {
  return note(emulation::copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream, true));
}

cudaError_t CUDARTAPI cudaMemset(void* memory, int value, size_t bytes) {
  return note(emulation::fill(memory, value, bytes, nullptr, false));
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return note(emulation::fill(memory, value, bytes, stream, true));
}

}  // extern "C"
