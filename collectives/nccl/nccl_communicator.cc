// The NCCL backend: every call is queued on a communication stream of its own, ordered by events after the
// caller's work and before what the caller does next. The host waits for results in host memory only.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "collectives/nccl/nccl_link.h"
#include "collectives/nccl/watchdog.h"
#include "collectives/nccl_module.h"
#include "collectives/p2p/store_board.h"
#include "collectives/p2p/subgroup.h"

namespace dtrain::nccl {
namespace {

using p2p::Call;
using p2p::Operation;

constexpr std::chrono::seconds kLeaveWait{5};
constexpr std::chrono::microseconds kPollEvery{20};
constexpr std::size_t kSmallestStageBytes = 4096;

ncclDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
    case DType::f16:
      return ncclFloat16;
    case DType::i8:
      return ncclInt8;
    case DType::i16:
    case DType::boolean:
      break;  // NCCL has no such type
  }
  throw UsageError("backend nccl: no collectives for dtype " + std::string(name_of(dtype)));
}

ncclRedOp_t reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::prod:
      return ncclProd;
  }
  return ncclSum;
}

/// Where a span in host memory goes on its way: pinned memory and as much on the GPU.
struct Stage {
  explicit Stage(std::size_t wanted) : bytes(wanted) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "allocate pinned memory for NCCL");
    pinned.reset(memory);
    check(cudaMalloc(&memory, bytes), "allocate GPU memory for NCCL");
    device.reset(memory);
  }
  std::size_t bytes;
  UniquePinned pinned;
  UniqueDeviceMemory device;
};

/// What communicator and works share. Members go in reverse: the watchdog first.
class Core {
 public:
  Core(const Bootstrap& bootstrap, Log& log)
      : device_(*bootstrap.device),
        link_(bootstrap, Deadline::after(bootstrap.timeout)),
        board_(*bootstrap.store, "nccl/" + bootstrap.name, bootstrap.rank),
        watchdog_({link_, board_, [this] { return link_.failure(); }, [this] { link_.kill(); },
                   [index = device_.index()] { static_cast<void>(cudaSetDevice(index)); }},
                  bootstrap.name, bootstrap.timeout, log) {}

  Device& device() noexcept { return device_; }
  NcclLink& link() noexcept { return link_; }
  Watchdog& watchdog() noexcept { return watchdog_; }

  std::shared_ptr<Stage> take_stage(std::size_t bytes) {
    std::size_t wanted = kSmallestStageBytes;
    while (wanted < bytes) wanted *= 2;
    for (const auto& stage : stages_) {
      if (stage.use_count() == 1 && stage->bytes == wanted) return stage;
    }
    return stages_.emplace_back(std::make_shared<Stage>(wanted));
  }

 private:
  Device& device_;
  NcclLink link_;
  StoreBoard board_;
  std::vector<std::shared_ptr<Stage>> stages_;  // given back when their work lets go
  Watchdog watchdog_;
};

/// Waits on the host until `event` is over; ends the group when `deadline` passes first.
void wait_until_over(Core& core, const Call& call, cudaEvent_t event, const Deadline& deadline) {
  while (true) {
    core.watchdog().check(call);
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) break;
    if (state != cudaErrorNotReady) check(state, "wait for " + call.text());
    if (deadline.expired()) core.watchdog().give_up(call);
    std::this_thread::sleep_for(kPollEvery);
  }
  core.watchdog().check(call);  // a killed call is over too, with nothing in its memory
}

class NcclWork final : public Work {
 public:
  /// `target`: the caller's stream, null for host memory. `result`, `stage`: what to bring back to the host.
  NcclWork(std::shared_ptr<Core> core, Call call, std::shared_ptr<UniqueEvent> over, cudaStream_t target,
           std::shared_ptr<Stage> stage, MemorySpan result)
      : core_(std::move(core)),
        call_(std::move(call)),
        over_(std::move(over)),
        target_(target),
        stage_(std::move(stage)),
        result_(result) {}

  ~NcclWork() override {
    // The stage must not be handed on while the GPU still writes to it.
    while (stage_ && !core_->watchdog().failure() && cudaEventQuery(over_->get()) == cudaErrorNotReady)
      std::this_thread::sleep_for(kPollEvery);
  }

  void wait(const Deadline& deadline) override {
    core_->watchdog().check(call_);
    if (target_ != nullptr) {
      check(cudaStreamWaitEvent(target_, over_->get(), 0), "let a stream wait for " + call_.text());
      return;
    }
    wait_until_over(*core_, call_, over_->get(), deadline);
    if (stage_ && result_.bytes() > 0) std::memcpy(result_.data, stage_->pinned.get(), result_.bytes());
    result_ = {};
    stage_.reset();
  }

  void wait_on_host(const Deadline& deadline) override {
    wait(deadline);
    wait_until_over(*core_, call_, over_->get(), deadline);
  }

  bool done() noexcept override {
    return core_->watchdog().failure().has_value() || cudaEventQuery(over_->get()) != cudaErrorNotReady;
  }

 private:
  std::shared_ptr<Core> core_;
  Call call_;
  std::shared_ptr<UniqueEvent> over_;
  cudaStream_t target_;
  std::shared_ptr<Stage> stage_;
  MemorySpan result_;
};

/// A call that a graph records: nothing has run, and what the launches do is not ours to know. The caller's
/// next call after a launch is behind it, and so watched for it.
class RecordedWork final : public Work {
 public:
  RecordedWork(UniqueEvent over, cudaStream_t target) : over_(std::move(over)), target_(target) {}
  void wait(const Deadline&) override {
    check(cudaStreamWaitEvent(target_, over_.get(), 0), "join a recorded collective");
  }
  void wait_on_host(const Deadline&) override {
    throw UsageError(
        "backend nccl: a collective that is being recorded in a graph cannot be waited for on the host");
  }
  bool done() noexcept override { return true; }

 private:
  UniqueEvent over_;
  cudaStream_t target_;
};

bool is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "ask whether a stream is being recorded");
  return status != cudaStreamCaptureStatusNone;
}

bool on_host(const MemorySpan& span) noexcept {
  return span.device == nullptr || span.device->type() == DeviceType::cpu;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Bootstrap& bootstrap, Log& log)
      : bootstrap_(bootstrap), log_(log), core_(std::make_shared<Core>(bootstrap, log)) {}

  ~NcclCommunicator() override {
    const Deadline deadline = Deadline::after(kLeaveWait);
    while (!core_->watchdog().idle() && !core_->watchdog().failure() && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (core_->watchdog().idle() && !core_->watchdog().failure()) core_->link().finish(deadline);
  }

  int rank() const noexcept override { return bootstrap_.rank; }
  int size() const noexcept override { return bootstrap_.size; }
  std::string_view backend() const noexcept override { return "nccl"; }

  std::unique_ptr<Work> all_reduce(MemorySpan span, ReduceOp op, std::string_view label) override {
    return start({.operation = Operation::all_reduce, .reduce = op, .dtype = span.dtype, .count = span.count},
                 span, span, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
                   return ncclAllReduce(in, out, span.count, data_type(span.dtype), reduction(op), comm,
                                        stream);
                 });
  }

  std::unique_ptr<Work> reduce_scatter(MemorySpan input, MemorySpan output, ReduceOp op,
                                       std::string_view label) override {
    require_counts("reduce_scatter", label, input, output, input.count, output.count * world());
    return start(
        {.operation = Operation::reduce_scatter, .reduce = op, .dtype = output.dtype, .count = output.count},
        input, output, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
          return ncclReduceScatter(in, out, output.count, data_type(output.dtype), reduction(op), comm,
                                   stream);
        });
  }

  std::unique_ptr<Work> all_gather(MemorySpan input, MemorySpan output, std::string_view label) override {
    require_counts("all_gather", label, input, output, output.count, input.count * world());
    return start({.operation = Operation::all_gather, .dtype = input.dtype, .count = input.count}, input,
                 output, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
                   return ncclAllGather(in, out, input.count, data_type(input.dtype), comm, stream);
                 });
  }

  std::unique_ptr<Work> broadcast(MemorySpan span, int root, std::string_view label) override {
    require_rank("broadcast", label, root, false);
    return start({.operation = Operation::broadcast, .dtype = span.dtype, .root = root, .count = span.count},
                 span, span, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
                   return ncclBroadcast(in, out, span.count, data_type(span.dtype), root, comm, stream);
                 });
  }

  std::unique_ptr<Work> send(MemorySpan span, int to, std::string_view label) override {
    require_rank("send", label, to, true);
    return start({.operation = Operation::send, .dtype = span.dtype, .root = to, .count = span.count}, span,
                 {}, label, [=](const void* in, void*, ncclComm_t comm, cudaStream_t stream) {
                   return ncclSend(in, span.count, data_type(span.dtype), to, comm, stream);
                 });
  }

  std::unique_ptr<Work> receive(MemorySpan span, int from, std::string_view label) override {
    require_rank("receive", label, from, true);
    return start({.operation = Operation::receive, .dtype = span.dtype, .root = from, .count = span.count},
                 {}, span, label, [=](const void*, void* out, ncclComm_t comm, cudaStream_t stream) {
                   return ncclRecv(out, span.count, data_type(span.dtype), from, comm, stream);
                 });
  }

  std::unique_ptr<Work> barrier(std::string_view label) override {
    return start({.operation = Operation::barrier}, {}, {}, label,
                 [](const void*, void* token, ncclComm_t comm, cudaStream_t stream) {
                   return ncclAllReduce(token, token, 1, ncclUint8, ncclMax, comm, stream);
                 });
  }

  std::unique_ptr<Communicator> split(int color, int key, const Deadline& deadline) override {
    const p2p::Subgroup group =
        p2p::agree_on_subgroup(*this, bootstrap_.name, ++splits_, color, key, deadline);
    Bootstrap part = bootstrap_;
    part.rank = group.rank_of(rank());
    part.size = static_cast<int>(group.members.size());
    part.name = group.name;
    return std::make_unique<NcclCommunicator>(part, log_);
  }

  void abort(std::string_view reason) noexcept override { core_->watchdog().abort(reason); }

 private:
  std::size_t world() const noexcept { return static_cast<std::size_t>(size()); }

  void require_rank(std::string_view operation, std::string_view label, int other, bool not_self) const {
    if (other >= 0 && other < size() && !(not_self && other == rank())) return;
    throw UsageError(fmt::format("{}('{}'): expected {} rank in [0, {}), got {}", operation, label,
                                 not_self ? "another" : "a", size(), other));
  }

  static void require_counts(std::string_view operation, std::string_view label, const MemorySpan& input,
                             const MemorySpan& output, std::size_t larger, std::size_t expected) {
    if (input.dtype == output.dtype && larger == expected && on_host(input) == on_host(output)) return;
    throw UsageError(
        fmt::format("{}('{}'): expected one dtype, both spans on one side and {} elements in the larger, got "
                    "{} x {} in and "
                    "{} x {} out",
                    operation, label, expected, dtrain::name_of(input.dtype), input.count,
                    dtrain::name_of(output.dtype), output.count));
  }

  cudaStream_t stream_of(const MemorySpan& span) {
    Device& device = span.device != nullptr ? *span.device : core_->device();
    Stream& stream = span.stream != nullptr ? *span.stream : device.compute_stream();
    return static_cast<cudaStream_t>(stream.native_handle());
  }

  template <class Queue>
  std::unique_ptr<Work> start(Call call, MemorySpan input, MemorySpan output, std::string_view label,
                              Queue queue) {
    call.label = label;
    core_->watchdog().number(call);
    core_->watchdog().check(call);
    const MemorySpan& given = output.data != nullptr ? output : input;
    const bool host = call.operation == Operation::barrier || on_host(given);
    const cudaStream_t comm_stream = core_->link().stream();
    const cudaStream_t target = host ? nullptr : stream_of(given);
    const bool recording = is_recording(host ? stream_of({}) : target);
    if (host && recording) {
      throw UsageError("backend nccl: " + call.text() +
                       " works on host memory and cannot be recorded in a graph; hand it memory of the GPU");
    }
    std::shared_ptr<Stage> stage;
    const void* in = input.data;
    void* out = output.data;
    if (host) {
      stage = core_->take_stage(std::max<std::size_t>(std::max(input.bytes(), output.bytes()), 1));
      // Where the two differ in size NCCL wants the smaller at this rank's place inside the larger.
      auto* const base = static_cast<std::byte*>(stage->device.get());
      const std::size_t place = static_cast<std::size_t>(rank());
      std::byte* const to = base + (call.operation == Operation::all_gather ? place * input.bytes() : 0);
      out = base + (call.operation == Operation::reduce_scatter ? place * output.bytes() : 0);
      in = to;
      if (input.bytes() > 0) {
        std::memcpy(stage->pinned.get(), input.data, input.bytes());
        check(cudaMemcpyAsync(to, stage->pinned.get(), input.bytes(), cudaMemcpyHostToDevice, comm_stream),
              "copy to the GPU for " + call.text());
      }
    } else {
      const UniqueEvent ready = make_event();
      check(cudaEventRecord(ready.get(), target), "record the start of " + call.text());
      check(cudaStreamWaitEvent(comm_stream, ready.get(), 0), "order " + call.text());
    }
    if (given.count > 0 || call.operation == Operation::barrier) {
      core_->link().queue([&](ncclComm_t comm, cudaStream_t stream) { return queue(in, out, comm, stream); },
                          call.text(), [&] { return core_->watchdog().failure().has_value(); });
    }
    if (host && output.bytes() > 0) {
      check(cudaMemcpyAsync(stage->pinned.get(), out, output.bytes(), cudaMemcpyDeviceToHost, comm_stream),
            "copy from the GPU for " + call.text());
    }
    auto over = std::make_shared<UniqueEvent>(make_event());
    check(cudaEventRecord(over->get(), comm_stream), "record the end of " + call.text());
    if (recording) return std::make_unique<RecordedWork>(std::move(*over), target);
    core_->watchdog().watch({call, [over] {
                               const cudaError_t state = cudaEventQuery(over->get());
                               if (state == cudaErrorNotReady) return false;
                               check(state, "look at a collective");
                               return true;
                             }});
    return std::make_unique<NcclWork>(core_, std::move(call), std::move(over), target, std::move(stage),
                                      output);
  }

  Bootstrap bootstrap_;
  Log& log_;
  std::shared_ptr<Core> core_;
  int splits_ = 0;
};

std::unique_ptr<Communicator> make(const Bootstrap& bootstrap, Log& log) {
  return std::make_unique<NcclCommunicator>(bootstrap, log);
}

LibraryVersion version() {
  int number = 0;
  static_cast<void>(ncclGetVersion(&number));  // 0 is not known
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&ncclGetVersion), &info) != 0;
  return {"NCCL",
          {NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH},
          {number / 10000, number % 10000 / 100, number % 100},
          found && info.dli_fname != nullptr ? info.dli_fname : ""};
}

}  // namespace
}  // namespace dtrain::nccl

extern "C" __attribute__((visibility("default"))) const dtrain::NcclPart* dtrain_nccl() {
  static constexpr dtrain::NcclPart kPart{dtrain::nccl::make, dtrain::nccl::version};
  return &kPart;
}
