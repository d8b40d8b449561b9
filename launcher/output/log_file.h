// A log file whose disk, or reader where it is a FIFO, may stand still without the launcher standing still
// too: bytes are queued, a thread writes them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// Opens the file at `path` for appending, and its folders. A FIFO needs no reader. The descriptor does not
/// block where the kernel can do that (FIFOs). Throws SystemError.
UniqueFd open_log_file(const std::string& path);

class LogFile {
 public:
  /// A file that takes nothing for this long has stalled: what comes then is dropped.
  static constexpr Duration kStall = std::chrono::seconds(5);

  /// Writes to `fd`; `name` is for messages. `clock` must outlive it.
  LogFile(UniqueFd fd, std::string name, const Clock& clock = steady_clock());
  /// Gives up what has not been written. Never blocks: a thread that hangs in a write is left to itself.
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Queues; never blocks. Dropped and counted when the file has stalled or fails.
  void append(std::string_view bytes);
  /// So much waits that no more should come for now. Never while the file has stalled.
  bool full() const;
  /// Waits until all is written or the file has stalled; false when the deadline passes first.
  bool settle(const Deadline& deadline) const;
  /// What was written last ends in the middle of what was appended: the rest was dropped.
  bool torn() const;
  /// Nothing more will come; what is not written is dropped.
  void give_up();
  /// What people should know since the last call; see Losses.
  std::optional<std::string> take_news();

 private:
  struct Queue;
  bool start_writing();
  std::shared_ptr<Queue> queue_;
};

}  // namespace dtrain::launcher
