// NCCL's functions. The ranks of a communicator meet in shared memory; the first collective connects them, as
// it does there, and waits for peers that have not come to theirs.
#include <nccl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "emulation/cudart/enter.h"
#include "emulation/nccl/reduce.h"
#include "emulation/nccl/transfer.h"

struct ncclComm {
  std::shared_ptr<emulation::Link> link;
  int device = 0;
  bool blocking = true;
  bool arrived = false, connecting = false, connected = false, finalizing = false;
  ncclResult_t state = ncclSuccess;
  std::string error;
  /// Calls that wait for the connection.
  std::vector<std::function<ncclResult_t()>> waiting;
};

namespace emulation {
namespace {

constexpr std::chrono::microseconds kPoll{50};

struct Grouped {
  ncclComm_t comm;
  cudaStream_t stream;
  Request request;
};

struct Group {
  int depth = 0;
  std::vector<ncclComm_t> starting;
  std::vector<Grouped> calls;
};

Group& group() {
  thread_local Group mine;
  return mine;
}

std::string& last_text() {
  thread_local std::string text;
  return text;
}

ncclResult_t fail(ncclComm_t comm, ncclResult_t result, std::string text) {
  last_text() = text;
  if (comm != nullptr) {
    comm->state = result;
    comm->error = std::move(text);
  }
  return result;
}

std::uint64_t host_id() {
  const char* const given = std::getenv("NCCL_HOSTID");
  std::string text = given == nullptr ? "" : given;
  if (text.empty()) {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    text = name;
  }
  return std::hash<std::string>{}(text);
}

template <class Test>
bool all_ranks(const ncclComm& comm, Test test) {
  const Segment& segment = *comm.link->segment;
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    if (!test(segment.rank(rank))) return false;
  }
  return true;
}

ncclResult_t refuse_shared_gpu(ncclComm_t comm) {
  const Segment& segment = *comm->link->segment;
  for (int a = 0; a < segment.ranks(); ++a) {
    for (int b = a + 1; b < segment.ranks(); ++b) {
      const RankSlot &first = segment.rank(a), &second = segment.rank(b);
      if (first.host != second.host || first.gpu != second.gpu) continue;
      return fail(comm, ncclInvalidUsage,
                  "Duplicate GPU detected : rank " + std::to_string(a) + " and rank " + std::to_string(b) +
                      " both on CUDA device " + std::to_string(first.gpu));
    }
  }
  return ncclSuccess;
}

// Looks how far the communicator has come; ncclInProgress while it waits for others. Never blocks.
ncclResult_t advance(ncclComm_t comm) {
  if (comm->state != ncclSuccess && comm->state != ncclInProgress) return comm->state;
  if (!comm->arrived) {
    if (!all_ranks(*comm, [](const RankSlot& slot) { return slot.arrived.load() != 0; }))
      return ncclInProgress;
    comm->arrived = true;
    if (comm->link->rank == 0) comm->link->segment->unlink();
    if (const ncclResult_t result = refuse_shared_gpu(comm); result != ncclSuccess) return result;
  }
  if (comm->connecting && !comm->connected) {
    if (!all_ranks(*comm, [](const RankSlot& slot) { return slot.connected.load() != 0; }))
      return ncclInProgress;
    comm->connected = true;
    for (const auto& call : std::exchange(comm->waiting, {})) {
      if (const ncclResult_t result = call(); result != ncclSuccess) return result;
    }
  }
  if (comm->finalizing && comm->link->under_way > 0) return ncclInProgress;
  comm->state = ncclSuccess;
  return ncclSuccess;
}

// A blocking communicator's call ends when the others are there.
ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t result = advance(comm);
  while (comm->blocking && result == ncclInProgress && !comm->link->aborted) {
    std::this_thread::sleep_for(kPoll);
    result = advance(comm);
  }
  return result;
}

ncclResult_t init(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, bool blocking) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return fail(nullptr, ncclInvalidArgument, "a rank out of range");
  if (enter() != cudaSuccess) return fail(nullptr, ncclUnhandledCudaError, "no GPU");
  auto made = std::make_unique<ncclComm>();
  made->device = current_device();
  made->blocking = blocking;
  made->link = std::make_shared<Link>();
  made->link->rank = rank;
  try {
    made->link->segment = std::make_shared<Segment>(std::string(id.internal), ranks);
  } catch (const std::exception& error) {
    return fail(nullptr, ncclSystemError, error.what());
  }
  RankSlot& slot = made->link->segment->rank(rank);
  slot.host = host_id();
  slot.gpu = Machine::get().options().visible[static_cast<std::size_t>(made->device)];
  slot.process = ::getpid();
  slot.arrived.store(1);
  *comm = made.release();
  if (group().depth > 0) {
    group().starting.push_back(*comm);
    return ncclSuccess;
  }
  return settle(*comm);
}

/// What is recorded NCCL registers with the peers, unless it is told not to; memory of a pool cannot be.
bool registers_pool_memory(const std::vector<Request>& requests) {
  const char* const told = std::getenv("NCCL_GRAPH_REGISTER");
  if (told != nullptr && std::string_view(told) == "0") return false;
  const Memory& memory = Machine::get().memory();
  return std::any_of(requests.begin(), requests.end(), [&](const Request& request) {
    const auto in = memory.find(request.in), out = memory.find(request.out);
    return (in && in->pooled) || (out && out->pooled);
  });
}

ncclResult_t queue(ncclComm_t comm, cudaStream_t handle,
                   std::shared_ptr<const std::vector<Request>> requests) {
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream || stream->device != comm->device) {
    return fail(comm, ncclInvalidArgument, "the stream is of another GPU than the communicator");
  }
  if (machine.lost(comm->device) != cudaSuccess || (stream->capture && stream->capture->invalid)) {
    return fail(comm, ncclUnhandledCudaError, "CUDA failed before");
  }
  if (stream->capture && registers_pool_memory(*requests)) {
    return fail(comm, ncclUnhandledCudaError,
                "memory of a pool cannot be registered for a graph (NCCL_GRAPH_REGISTER)");
  }
  const std::string_view fault = machine.fault(Place::collective, comm->device);
  if (fault == "fail") return fail(comm, ncclSystemError, "asked for: a collective fails");
  if (fault == "hang") {
    machine.queue(stream, {Kind::collective, "nccl, hanging as asked for", [link = comm->link] {
                             return [link] { return link->aborted ? Progress::done : Progress::stalled; };
                           }});
    return ncclSuccess;
  }
  ++machine.counts().collectives;
  ++machine.counts().launches;
  machine.queue(stream, {Kind::collective, "nccl",
                         [link = comm->link, kept = std::move(requests)] { return start(link, kept); }});
  return ncclSuccess;
}

// Tells the peers that this rank is there, once.
void connect(ncclComm_t comm) {
  if (std::exchange(comm->connecting, true)) return;
  const std::string_view fault = Machine::get().fault(Place::connect, comm->device);
  if (fault == "die") ::kill(::getpid(), SIGKILL);
  if (fault == "hang") return;
  comm->link->segment->rank(comm->link->rank).connected.store(1);
}

// All calls on one stream of one communicator that were grouped become one.
ncclResult_t call(ncclComm_t comm, cudaStream_t stream, std::vector<Request> requests) {
  if (comm->link->aborted) return fail(comm, ncclInvalidUsage, "the communicator was aborted");
  if (const ncclResult_t state = advance(comm); state != ncclSuccess && state != ncclInProgress) return state;
  auto kept = std::make_shared<const std::vector<Request>>(std::move(requests));
  const auto run = [comm, stream, kept] { return queue(comm, stream, kept); };
  connect(comm);
  if (comm->connected) return run();
  comm->waiting.push_back(run);
  return settle(comm);
}

ncclResult_t submit(ncclComm_t comm, cudaStream_t stream, const Request& request) {
  if (comm == nullptr) return fail(nullptr, ncclInvalidArgument, "no communicator");
  const int ranks = comm->link->segment->ranks();
  if (size_of(request.type) == 0)
    return fail(nullptr, ncclInvalidArgument, "a data type that NCCL does not have");
  if (request.peer < 0 || request.peer >= ranks)
    return fail(nullptr, ncclInvalidArgument, "a rank out of range");
  if (group().depth > 0) {
    group().calls.push_back({comm, stream, request});
    return ncclSuccess;
  }
  return call(comm, stream, {request});
}

ncclResult_t end_group() {
  Group done = std::exchange(group(), Group{});
  ncclResult_t result = ncclSuccess;
  const auto note = [&](ncclResult_t got) {
    if (result == ncclSuccess || (got != ncclSuccess && got != ncclInProgress)) result = got;
  };
  for (const ncclComm_t comm : done.starting) note(settle(comm));
  std::vector<std::pair<Grouped, std::vector<Request>>> merged;
  for (const Grouped& grouped : done.calls) {
    auto at = std::find_if(merged.begin(), merged.end(), [&](const auto& other) {
      return other.first.comm == grouped.comm && other.first.stream == grouped.stream;
    });
    if (at == merged.end()) at = merged.insert(at, {grouped, {}});
    at->second.push_back(grouped.request);
  }
  // All say that they are there before one of them waits: they may be ranks of one thread.
  for (const auto& [first, requests] : merged) {
    connect(first.comm);
  }
  for (auto& [first, requests] : merged) note(call(first.comm, first.stream, std::move(requests)));
  return result;
}

}  // namespace
}  // namespace emulation

using emulation::Request;
using emulation::submit;
using emulation::Transfer;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/emulated-nccl-%08x%08x", random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const bool blocking = config == nullptr || config->blocking != 0;
  return emulation::init(comm, ranks, id, rank, blocking);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return emulation::init(comm, ranks, id, rank, true);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  const int before = emulation::current_device();
  ncclGroupStart();
  for (int rank = 0; rank < count; ++rank) {
    static_cast<void>(cudaSetDevice(devices == nullptr ? rank : devices[rank]));
    if (const ncclResult_t result = ncclCommInitRank(&comms[rank], count, id, rank); result != ncclSuccess) {
      return result;
    }
  }
  static_cast<void>(cudaSetDevice(before));
  return ncclGroupEnd();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr) return emulation::fail(nullptr, ncclInvalidArgument, "no communicator");
  *error = emulation::advance(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->finalizing = true;
  return emulation::settle(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->finalizing = true;
  comm->blocking = true;
  const ncclResult_t result = emulation::settle(comm);
  delete comm;
  return result;
}

// What is under way comes off the GPU, with nothing in its memory.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->link->aborted = true;
  comm->link->segment->unlink();
  emulation::Machine::get().notify();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->link->segment->ranks();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->link->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm != nullptr && !comm->error.empty() ? comm->error.c_str() : emulation::last_text().c_str();
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

ncclResult_t ncclGroupStart(void) {
  ++emulation::group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  if (emulation::group().depth == 0) return emulation::fail(nullptr, ncclInvalidUsage, "no group was begun");
  if (--emulation::group().depth > 0) return ncclSuccess;
  return emulation::end_group();
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, {Transfer::all_reduce, in, out, count, type, op, 0});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, {Transfer::reduce, in, out, count, type, op, root});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, stream, {Transfer::all_gather, in, out, count, type, ncclSum, 0});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, {Transfer::reduce_scatter, in, out, count, type, op, 0});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, {Transfer::broadcast, in, out, count, type, ncclSum, root});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, stream, {Transfer::send, in, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, stream, {Transfer::receive, nullptr, out, count, type, ncclSum, peer});
}

}  // extern "C"
