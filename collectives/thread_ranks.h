// Ranks that are threads of one process: the whole of a job's communication without a second process, for
// several devices in one program and for tests. Deadlines, reports and results are those of other backends.
//
//     NullLog log;
//     run_thread_ranks(4, {}, log, [](Communicator& ranks) {
//       float sum = 1;
//       ranks.all_reduce({&sum, 1, DType::f32}, ReduceOp::sum, "sum")->wait(Deadline::never());   // 4
//     });
#pragma once

#include <functional>
#include <memory>

#include "collectives/all_reduce_algorithm.h"
#include "collectives/communicator.h"
#include "runtime/base/log.h"
#include "runtime/base/spans.h"

namespace dtrain {

/// Where threads meet (Bootstrap::rendezvous): those who hold one rendezvous and are given different ranks
/// become a group. Thread-safe.
class ThreadRendezvous;
std::shared_ptr<ThreadRendezvous> make_thread_rendezvous();

struct ThreadRanksOptions {
  Duration timeout = std::chrono::minutes(5);  ///< bounds each single call
  AllReduceAlgorithm all_reduce = AllReduceAlgorithm::automatic;
  std::function<SpanRecorder*(int rank)> spans = {};  ///< a rank's Bootstrap::spans; empty: none
};

/// Runs `body` once on each of `size` >= 1 threads, each with its communicator, and returns when all have
/// ended. Where one throws, the others' calls fail with its words, and its exception is thrown here: of
/// several, the one that came first and was not caused by another rank. `log` outlives the call.
void run_thread_ranks(int size, const ThreadRanksOptions& options, Log& log,
                      const std::function<void(Communicator&)>& body);

}  // namespace dtrain
