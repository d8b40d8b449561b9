// How a call gets onto the GPU: after the caller's work, on the communication stream, by way of pinned memory
// where its memory is the host's.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/nccl/works.h"

namespace dtrain::nccl {

/// Queues what a call needs, from memory of the GPU; in is only read.
using Enqueue = std::function<ncclResult_t(const void* in, void* out, ncclComm_t, cudaStream_t)>;

/// All that `body` starts is one call to NCCL.
template <class Body>
ncclResult_t grouped(Body body) {
  if (const ncclResult_t begun = ncclGroupStart(); begun != ncclSuccess) return begun;
  const ncclResult_t started = body();
  const ncclResult_t ended = ncclGroupEnd();
  return started != ncclSuccess && started != ncclInProgress ? started : ended;
}

/// The failure of the two, if there is one.
inline ncclResult_t worse(ncclResult_t a, ncclResult_t b) {
  return a != ncclSuccess && a != ncclInProgress ? a : b;
}

inline bool on_host(const MemorySpan& span) noexcept {
  return span.device == nullptr || span.device->type() == DeviceType::cpu;
}

/// One rank's. Used by one thread at a time.
class Calls {
 public:
  Calls(const Bootstrap& bootstrap, Log& log)
      : core_(std::make_shared<Core>(bootstrap, log)), rank_(bootstrap.rank) {}

  Core& core() noexcept { return *core_; }

  /// Starts `call`, whose memory is in one place: the host's, the GPU's, or that of another GPU of this
  /// process, which is copied to the communicator's and back. Throws PeerError when the group is dead,
  /// UsageError for host memory in a step that is being recorded, DeviceError.
  std::unique_ptr<Work> start(Call call, const MemorySpan& input, const MemorySpan& output,
                              std::string_view label, const Enqueue& enqueue);
  /// The same for an exchange, whose `call` has its messages: the receives, then the sends.
  std::unique_ptr<Work> start_exchange(Call call, std::span<const Message> sends,
                                       std::span<const Message> receives, std::string_view label);

 private:
  /// What the watchdog sees of a call: that NCCL has taken it, then its end on the GPU. A call that went
  /// wrong on its way no longer matters.
  struct Settling {
    std::mutex mutex;
    bool taken = false;
    std::shared_ptr<UniqueEvent> over;  ///< null: there is no more to it
    bool done();
  };
  /// Lets go of a call that nothing came of.
  class Watched {
   public:
    explicit Watched(std::shared_ptr<Settling> settling) : settling_(std::move(settling)) {}
    ~Watched() { settle(nullptr); }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    void settle(std::shared_ptr<UniqueEvent> over);

   private:
    std::shared_ptr<Settling> settling_;
  };

  // Where a call's memory is, and the caller's stream for it.
  struct Place {
    bool host = false;
    bool away = false;              ///< on another GPU than the communicator's
    cudaStream_t target = nullptr;  ///< null on the host
    bool recording = false;
    std::shared_ptr<Watched> watched;
  };
  // How memory from elsewhere lies in its stage; in bytes.
  struct Staged {
    std::size_t bytes, in, out;
  };

  Place begin(Call& call, const MemorySpan& given, std::string_view label);
  std::unique_ptr<Work> finish(Call call, const Place& place, std::shared_ptr<Stage> stage, const void* from,
                               std::vector<MemorySpan> results);
  void queue(const Call& call, const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& enqueue);
  void copy_to_stage(const Call& call, const Stage& stage, std::size_t offset, const MemorySpan& span);
  Staged stage_of(Operation operation, const MemorySpan& input, const MemorySpan& output) const;
  void copy_from_peer(const Call& call, const Stage& stage, std::size_t offset, const MemorySpan& span);
  Device& device_of(const MemorySpan& span);
  cudaStream_t stream_of(const MemorySpan& span);

  std::shared_ptr<Core> core_;
  const int rank_;
};

}  // namespace dtrain::nccl
