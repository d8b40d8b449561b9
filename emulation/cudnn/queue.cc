#include "emulation/cudnn/queue.h"

#include <utility>

#include "emulation/cudart/enter.h"
#include "emulation/cudnn/handles.h"

namespace emulation {

std::uint64_t bytes_of(const Image& image) {
  return static_cast<std::uint64_t>(image.count()) * size_of(image.type);
}

Arithmetic arithmetic_of(const Convolution& c) {
  switch (c.input.type) {
    case Element::f32:
      return c.tf32 ? Arithmetic::tf32 : Arithmetic::f32;
    case Element::f64:
      return Arithmetic::f64;
    case Element::bf16:
      return Arithmetic::bf16;
    case Element::f16:
      return Arithmetic::f16;
  }
  return Arithmetic::none;
}

cudnnStatus_t queue(cudnnHandle_t handle, Work noted, std::function<void()> work) {
  if (enter() != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle->stream);
  if (!stream || (stream->capture && stream->capture->invalid)) return CUDNN_STATUS_EXECUTION_FAILED;
  ++machine.counts().launches;
  std::string name = noted.name;
  machine.queue(stream, at_once(Kind::library, std::move(name),
                                [&machine, noted = std::move(noted), work = std::move(work)] {
                                  work();
                                  machine.work().add(noted);
                                }));
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace emulation
