// What an NCCL communicator and the works it hands out share, and the works themselves.
#pragma once

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/nccl/nccl_link.h"
#include "collectives/nccl/watchdog.h"
#include "collectives/p2p/store_oob_kv.h"

namespace dtrain::nccl {

using p2p::Call;
using p2p::Operation;

inline constexpr std::chrono::microseconds kPollEvery{20};
inline constexpr std::size_t kSmallestStageBytes = 4096;

/// Staging for a span that is not on the communicator's GPU: as much memory there, and pinned memory where
/// it comes from the host.
struct Stage {
  Stage(std::size_t wanted, bool from_host) : bytes(wanted) {
    void* memory = nullptr;
    if (from_host) {
      check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "allocate pinned memory for NCCL");
      pinned.reset(memory);
    }
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
        oob_(*bootstrap.store, "nccl/" + bootstrap.name, bootstrap.rank),
        watchdog_({link_, oob_, [this] { return link_.failure(); }, [this] { link_.kill(); },
                   [index = device_.index()] { static_cast<void>(cudaSetDevice(index)); }},
                  bootstrap.name, bootstrap.timeout, log) {}

  Device& device() noexcept { return device_; }
  NcclLink& link() noexcept { return link_; }
  Watchdog& watchdog() noexcept { return watchdog_; }

  std::shared_ptr<Stage> take_stage(std::size_t bytes, bool from_host = true) {
    std::size_t wanted = kSmallestStageBytes;
    while (wanted < bytes) wanted *= 2;
    for (const auto& stage : stages_) {
      const bool fits = stage->bytes == wanted && (stage->pinned.get() != nullptr) == from_host;
      if (stage.use_count() == 1 && fits) return stage;
    }
    return stages_.emplace_back(std::make_shared<Stage>(wanted, from_host));
  }

 private:
  Device& device_;
  NcclLink link_;
  StoreOobKv oob_;
  std::vector<std::shared_ptr<Stage>> stages_;  // given back when their work lets go
  Watchdog watchdog_;
};

/// Waits on the host until `event` is over; ends the group when `deadline` passes first.
inline void wait_until_over(Core& core, const Call& call, cudaEvent_t event, const Deadline& deadline) {
  Patience patience;
  while (true) {
    core.watchdog().check(call);
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) break;
    if (state != cudaErrorNotReady) check(state, "wait for " + call.text());
    if (deadline.expired()) core.watchdog().give_up(call);
    patience.wait();
  }
  core.watchdog().check(call);  // a killed call is over too, with nothing in its memory
}

class NcclWork final : public Work {
 public:
  /// `target`: the caller's stream, null for host memory. `stage`, `results`: what to bring back to the host,
  /// in order.
  NcclWork(std::shared_ptr<Core> core, Call call, std::shared_ptr<UniqueEvent> over, cudaStream_t target,
           std::shared_ptr<Stage> stage, std::vector<MemorySpan> results)
      : core_(std::move(core)),
        call_(std::move(call)),
        over_(std::move(over)),
        target_(target),
        stage_(std::move(stage)),
        results_(std::move(results)) {}

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
    const std::byte* from = stage_ ? static_cast<const std::byte*>(stage_->pinned.get()) : nullptr;
    for (const MemorySpan& result : results_) {
      if (from == nullptr || result.bytes() == 0) continue;
      std::memcpy(result.data, from, result.bytes());
      from += result.bytes();
    }
    results_.clear();
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
  std::vector<MemorySpan> results_;
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

}  // namespace dtrain::nccl
