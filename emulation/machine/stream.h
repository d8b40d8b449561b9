// What streams, events and graphs are on the emulated machine. All of it is guarded by the machine's lock.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace emulation {

/// What a look at work under way has brought.
enum class Progress { done, moved, stalled };

enum class Kind { kernel, copy, fill, library, collective, graph, host, record, wait, release };

/// Something to be done, by a stream or as a node of a graph.
struct Operation {
  Kind kind = Kind::kernel;
  std::string name;
  /// A new run of it: called again and again, by the machine's thread without its lock, until it says done.
  std::function<std::function<Progress()>()> start;
};

/// An operation that is over when `work` returns.
Operation at_once(Kind kind, std::string name, std::function<void()> work);

struct Node {
  Operation operation;
  std::vector<std::uint32_t> after;  ///< nodes that come first
};

struct Capture;

/// A point in a stream. A record counts up `recorded`; when the stream gets there, `reached` follows.
struct Event {
  int device = 0;
  bool timed = false;
  std::uint64_t recorded = 0, reached = 0;
  std::chrono::steady_clock::time_point when;
  std::shared_ptr<Capture> capture;  ///< what it was recorded in, with the nodes it stands for
  std::vector<std::uint32_t> nodes;
};

struct Stream {
  struct Queued {
    std::uint64_t number = 0;  ///< grows over all of a device
    Operation operation;
    std::function<Progress()> run;
    std::shared_ptr<Event> event;  ///< of records and waits
    std::uint64_t version = 0;
  };
  int device = 0;
  bool blocking = true;  ///< takes turns with the legacy default stream
  bool legacy = false;
  int priority = 0;
  bool destroyed = false;
  std::deque<Queued> queue;
  std::shared_ptr<Capture> capture;
  std::vector<std::uint32_t> tail;  ///< nodes that the next one comes after
};

/// A recording under way.
struct Capture {
  std::vector<Node> nodes;
  Stream* origin = nullptr;
  std::set<Stream*> members;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalid = false, ended = false;
};

}  // namespace emulation

// CUDA's opaque handles.
struct CUstream_st {
  std::shared_ptr<emulation::Stream> stream;
};
struct CUevent_st {
  std::shared_ptr<emulation::Event> event;
};
struct CUgraph_st {
  std::shared_ptr<const std::vector<emulation::Node>> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<emulation::Node>> nodes;
  std::shared_ptr<bool> running;
};
struct CUmemPoolHandle_st {
  int device = 0;
  std::uint64_t threshold = 0;
};
