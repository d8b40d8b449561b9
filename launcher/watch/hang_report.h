// Says what each worker of a job that hangs is doing: written in a thread of its own, since debuggers take
// seconds and /proc may block where a process is stuck in the kernel.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "launcher/watch/progress.h"

namespace dtrain::launcher {

/// What is reported of one worker that runs.
struct HungWorker {
  int rank = 0;
  pid_t pid = 0;
  bool hangs = false;  ///< or it makes progress while others do not
  WorkerProgress progress;
};

struct HangQuestion {
  std::vector<HungWorker> workers;
  Duration timeout{};
  bool stacks = false;
  std::string nccl_monitor;  ///< "host:port"; empty: NCCL is not asked
  bool asked = false;        ///< somebody wants to know, whether or not a worker hangs
};

/// The report's lines. Blocks at most some 10 s a worker and a minute in all, unless /proc itself hangs.
std::vector<std::string> hang_report(const HangQuestion& question);

/// A report that is being written. Let go of, it is forgotten: its thread ends by itself, or with the
/// process, and cannot be waited for, since what it reads may be what hangs.
class PendingHangReport {
 public:
  explicit PendingHangReport(HangQuestion question);
  /// Readable once the report is complete; to be polled.
  int fd() const noexcept;
  /// The complete report.
  std::vector<std::string> take();

 private:
  struct Shared;
  static void report_to(const std::shared_ptr<Shared>& shared, const HangQuestion& question);
  std::shared_ptr<Shared> shared_;
};

}  // namespace dtrain::launcher
