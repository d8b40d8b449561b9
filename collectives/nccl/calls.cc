#include "collectives/nccl/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace dtrain::nccl {
namespace {

constexpr std::size_t kStageAlign = 256;

bool is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "ask whether a stream is being recorded");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

bool Calls::Settling::done() {
  const std::lock_guard lock(mutex);
  if (!taken || over == nullptr) return taken;
  const cudaError_t state = cudaEventQuery(over->get());
  if (state == cudaErrorNotReady) return false;
  check(state, "look at a collective");
  return true;
}

void Calls::Watched::settle(std::shared_ptr<UniqueEvent> over) {
  const std::lock_guard lock(settling_->mutex);
  if (settling_->taken) return;
  settling_->taken = true;
  settling_->over = std::move(over);
}

Device& Calls::device_of(const MemorySpan& span) {
  return span.device != nullptr ? *span.device : core_->device();
}

cudaStream_t Calls::stream_of(const MemorySpan& span) {
  Stream& stream = span.stream != nullptr ? *span.stream : device_of(span).compute_stream();
  return static_cast<cudaStream_t>(stream.native_handle());
}

// Numbers the call, finds out where it works and has it wait for the caller's work so far.
Calls::Place Calls::begin(Call& call, const MemorySpan& given, std::string_view label) {
  call.label = label;
  core_->watchdog().number(call);
  core_->watchdog().check(call);
  Place place;
  place.host = call.operation == Operation::barrier || on_host(given);
  place.target = place.host ? nullptr : stream_of(given);
  place.away = !place.host && device_of(given).index() != core_->device().index();
  place.recording = is_recording(place.host ? stream_of({}) : place.target);
  if (place.host && place.recording) {
    throw UsageError("backend nccl: " + call.text() +
                     " works on host memory and cannot be recorded in a graph; give it memory on the GPU");
  }
  // Watched before NCCL has it: a first call connects, and a peer that does not come must not hold it
  // forever.
  const auto settling = std::make_shared<Settling>();
  core_->watchdog().watch({call, [settling] { return settling->done(); }});
  place.watched = std::make_shared<Watched>(settling);
  // Events and stages are of the thread's current GPU, which may be any of this process'.
  const auto choose = [&](const Device& device) {
    check(cudaSetDevice(device.index()), "choose the GPU of " + call.text());
  };
  if (!place.host) {
    choose(device_of(given));
    const UniqueEvent ready = make_event();
    check(cudaEventRecord(ready.get(), place.target), "record the start of " + call.text());
    check(cudaStreamWaitEvent(core_->link().stream(), ready.get(), 0), "order " + call.text());
  }
  choose(core_->device());
  return place;
}

void Calls::queue(const Call& call, const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& enqueue) {
  core_->link().queue(enqueue, call.text(), [&] { return core_->watchdog().failure().has_value(); });
  core_->watchdog().check(call);
}

void Calls::copy_to_stage(const Call& call, const Stage& stage, std::size_t offset, const MemorySpan& span) {
  if (span.bytes() == 0) return;
  std::byte* const pinned = static_cast<std::byte*>(stage.pinned.get()) + offset;
  std::memcpy(pinned, span.data, span.bytes());
  check(cudaMemcpyAsync(static_cast<std::byte*>(stage.device.get()) + offset, pinned, span.bytes(),
                        cudaMemcpyHostToDevice, core_->link().stream()),
        "copy to the GPU for " + call.text());
}

void Calls::copy_from_peer(const Call& call, const Stage& stage, std::size_t offset, const MemorySpan& span) {
  if (span.bytes() == 0) return;
  check(cudaMemcpyAsync(static_cast<std::byte*>(stage.device.get()) + offset, span.data, span.bytes(),
                        cudaMemcpyDeviceToDevice, core_->link().stream()),
        "copy from another GPU for " + call.text());
}

// `results`: what lies on the GPU from `from` on, in order, and goes back to the host.
std::unique_ptr<Work> Calls::finish(Call call, const Place& place, std::shared_ptr<Stage> stage,
                                    const void* from, std::vector<MemorySpan> results) {
  const cudaStream_t comm_stream = core_->link().stream();
  std::size_t bytes = 0;
  for (const MemorySpan& result : results) bytes += result.bytes();
  if (place.host && bytes > 0) {
    check(cudaMemcpyAsync(stage->pinned.get(), from, bytes, cudaMemcpyDeviceToHost, comm_stream),
          "copy from the GPU for " + call.text());
  }
  auto over = std::make_shared<UniqueEvent>(make_event());
  check(cudaEventRecord(over->get(), comm_stream), "record the end of " + call.text());
  if (place.recording) return std::make_unique<RecordedWork>(std::move(*over), place.target);
  place.watched->settle(over);
  return std::make_unique<NcclWork>(core_, std::move(call), std::move(over), place.target, std::move(stage),
                                    std::move(results));
}

// Where host memory is staged: NCCL works in place where the call does; where one side is a part of the
// other it wants that at this rank's place inside it; else the two are apart, the output first.
Calls::Staged Calls::stage_of(Operation operation, const MemorySpan& input, const MemorySpan& output) const {
  const auto place = static_cast<std::size_t>(rank_);
  switch (operation) {
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all: {
      const std::size_t behind = (output.bytes() + kStageAlign - 1) / kStageAlign * kStageAlign;
      return {behind + input.bytes(), behind, 0};
    }
    case Operation::all_gather:
      return {output.bytes(), place * input.bytes(), 0};
    case Operation::reduce_scatter:
      return {input.bytes(), 0, place * output.bytes()};
    default:
      return {std::max(input.bytes(), output.bytes()), 0, 0};
  }
}

std::unique_ptr<Work> Calls::start(Call call, const MemorySpan& input, const MemorySpan& output,
                                   std::string_view label, const Enqueue& enqueue) {
  const MemorySpan& given = output.data != nullptr ? output : input;
  const Place place = begin(call, given, label);
  std::shared_ptr<Stage> stage;
  const void* in = input.data;
  void* out = output.data;
  if (place.host || place.away) {
    const Staged staged = stage_of(call.operation, input, output);
    stage = core_->take_stage(std::max<std::size_t>(staged.bytes, 1), place.host);
    place.host ? copy_to_stage(call, *stage, staged.in, input)
               : copy_from_peer(call, *stage, staged.in, input);
    in = static_cast<std::byte*>(stage->device.get()) + staged.in;
    out = static_cast<std::byte*>(stage->device.get()) + staged.out;
  }
  if (given.count > 0 || call.operation == Operation::barrier) {
    queue(call, [&](ncclComm_t comm, cudaStream_t stream) { return enqueue(in, out, comm, stream); });
  }
  if (place.away) {
    if (output.bytes() > 0) {
      check(
          cudaMemcpyAsync(output.data, out, output.bytes(), cudaMemcpyDeviceToDevice, core_->link().stream()),
          "copy to another GPU for " + call.text());
    }
    stage.reset();  // its next user uses it after this, in the same stream
  }
  return finish(std::move(call), place, std::move(stage), out, {output});
}

// All of it on one side; on the host, what comes lies first in the stage.
std::unique_ptr<Work> Calls::start_exchange(Call call, std::span<const Message> sends,
                                            std::span<const Message> receives, std::string_view label) {
  std::vector<Message> messages(receives.begin(), receives.end());
  messages.insert(messages.end(), sends.begin(), sends.end());
  const MemorySpan first = messages.empty() ? MemorySpan{} : messages.front().span;
  std::size_t bytes = 0;
  for (const Message& message : messages) {
    bytes += message.span.bytes();
    if (on_host(message.span) == on_host(first)) continue;
    throw UsageError(
        fmt::format("exchange('{}'): expected all messages on the host or all on the GPU, got both", label));
  }
  const Place place = begin(call, first, label);
  for (const Message& message : messages) {
    if (place.host || (!place.away && stream_of(message.span) == place.target)) continue;
    throw UsageError(
        fmt::format("exchange('{}'): expected memory of one stream of the communicator's GPU, got {}", label,
                    place.away ? "another GPU's" : "several"));
  }
  std::shared_ptr<Stage> stage;
  std::vector<void*> places;
  std::vector<MemorySpan> results;
  if (place.host) stage = core_->take_stage(std::max<std::size_t>(bytes, 1));
  for (std::size_t i = 0, offset = 0; i < messages.size(); offset += messages[i++].span.bytes()) {
    const MemorySpan& span = messages[i].span;
    places.push_back(place.host ? static_cast<std::byte*>(stage->device.get()) + offset : span.data);
    if (place.host && i >= receives.size()) copy_to_stage(call, *stage, offset, span);
    if (i < receives.size()) results.push_back(span);
  }
  queue(call, [&](ncclComm_t comm, cudaStream_t stream) {
    return grouped([&] {
      ncclResult_t result = ncclSuccess;
      for (std::size_t i = 0; i < messages.size(); ++i) {
        const auto& [span, peer] = messages[i];
        if (span.count == 0) continue;
        result = worse(result, i < receives.size()
                                   ? ncclRecv(places[i], span.bytes(), ncclUint8, peer, comm, stream)
                                   : ncclSend(places[i], span.bytes(), ncclUint8, peer, comm, stream));
      }
      return result;
    });
  });
  const void* const from = place.host ? stage->device.get() : nullptr;
  return finish(std::move(call), place, std::move(stage), from, std::move(results));
}

}  // namespace dtrain::nccl
