// Streams and events.
#include "emulation/cudart/enter.h"

namespace emulation {
namespace {

cudaError_t make_stream(cudaStream_t* handle, unsigned flags, int priority) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  if (handle == nullptr || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0)
    return cudaErrorInvalidValue;
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  *handle = new CUstream_st{machine.make_stream(current_device(), flags == cudaStreamDefault, priority)};
  return cudaSuccess;
}

cudaError_t make_event(cudaEvent_t* handle, unsigned flags) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  if (handle == nullptr) return cudaErrorInvalidValue;
  auto event = std::make_shared<Event>();
  event->device = current_device();
  event->timed = (flags & cudaEventDisableTiming) == 0;
  *handle = new CUevent_st{std::move(event)};
  return cudaSuccess;
}

// A wait for a point in what is being recorded: the stream joins the recording.
cudaError_t join_capture(Stream& stream, const Event& event) {
  if (event.capture->ended || event.capture->invalid) return cudaErrorCapturedEvent;
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.capture->members.insert(&stream);
    stream.tail.clear();
  }
  for (const std::uint32_t node : event.nodes) {
    if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end())
      stream.tail.push_back(node);
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace emulation

using emulation::Machine;
using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* stream) {
  return note(emulation::make_stream(stream, cudaStreamDefault, 0));
}
cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return note(emulation::make_stream(stream, flags, 0));
}
cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return note(emulation::make_stream(stream, flags, priority));
}

// What is queued still runs.
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return note(cudaErrorInvalidResourceHandle);
  {
    const auto lock = Machine::get().lock();
    if (stream->stream->capture) stream->stream->capture->invalid = true;
    stream->stream->destroyed = true;
  }
  delete stream;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t handle) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return note(cudaErrorStreamCaptureUnsupported);
  }
  if (const cudaError_t error = emulation::forbid_while_capturing(machine); error != cudaSuccess)
    return note(error);
  machine.wait(lock, stream->device, [&] { return stream->queue.empty(); });
  return note(machine.lost(stream->device));
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t handle) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = emulation::forbid_while_capturing(machine); error != cudaSuccess)
    return note(error);
  machine.nudge();
  return note(stream->queue.empty() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (event == nullptr) return note(cudaErrorInvalidResourceHandle);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (event->event->capture) return note(emulation::join_capture(*stream, *event->event));
  if (stream->capture) {
    stream->capture->invalid = true;
    return note(cudaErrorStreamCaptureIsolation);
  }
  machine.make_wait(stream, event->event);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* event) {
  return note(emulation::make_event(event, cudaEventDefault));
}
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return note(emulation::make_event(event, flags));
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return note(cudaErrorInvalidResourceHandle);
  delete event;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (event == nullptr) return note(cudaErrorInvalidResourceHandle);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream || stream->device != event->event->device) return note(cudaErrorInvalidResourceHandle);
  machine.record(stream, event->event);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (event == nullptr) return note(cudaErrorInvalidResourceHandle);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  if (event->event->capture) {
    event->event->capture->invalid = true;
    return note(cudaErrorCapturedEvent);
  }
  if (const cudaError_t error = emulation::forbid_while_capturing(machine); error != cudaSuccess)
    return note(error);
  if (event->event->reached >= event->event->recorded) return cudaSuccess;
  machine.nudge();
  return cudaErrorNotReady;
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (event == nullptr) return note(cudaErrorInvalidResourceHandle);
  Machine& machine = Machine::get();
  auto lock = machine.lock();
  if (event->event->capture) {
    event->event->capture->invalid = true;
    return note(cudaErrorCapturedEvent);
  }
  if (const cudaError_t error = emulation::forbid_while_capturing(machine); error != cudaSuccess)
    return note(error);
  const auto kept = event->event;
  const std::uint64_t version = kept->recorded;
  machine.wait(lock, kept->device, [&] { return kept->reached >= version; });
  return note(machine.lost(kept->device));
}

// The host's time, which says nothing about a GPU's.
cudaError_t CUDARTAPI cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  const auto lock = Machine::get().lock();
  const emulation::Event &from = *begin->event, &to = *end->event;
  if (!from.timed || !to.timed || from.recorded == 0 || to.recorded == 0)
    return note(cudaErrorInvalidResourceHandle);
  if (from.reached < from.recorded || to.reached < to.recorded) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to.when - from.when).count();
  return cudaSuccess;
}

// As cudaLaunchHostFunc, but not for recordings.
cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t callback, void* data,
                                            unsigned) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return note(cudaErrorStreamCaptureUnsupported);
  }
  machine.queue(stream, emulation::at_once(emulation::Kind::host, "callback",
                                           [=] { callback(handle, cudaSuccess, data); }));
  return cudaSuccess;
}

// Memory of both sides is one here.
cudaError_t CUDARTAPI cudaStreamAttachMemAsync(cudaStream_t, void* memory, size_t, unsigned) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  const auto piece = Machine::get().memory().find(memory);
  return note(piece && piece->kind == emulation::MemoryKind::managed ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  machine.queue(stream, emulation::at_once(emulation::Kind::host, "host function", [=] { function(data); }));
  return cudaSuccess;
}

}  // extern "C"
