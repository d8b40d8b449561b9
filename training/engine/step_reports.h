// What a step tells the host: the loss, whether to stop, how loss scaling fares. On a GPU the host runs ahead
// and reads a report some steps later, so that nothing in a step waits for it; on the CPU a report is there
// at once.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/metrics/metrics_log.h"
#include "runtime/optim/guard/grad_scaler.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// A step, from what the host knows when it is queued to what comes back.
struct StepReport {
  /// Queued: step, epoch and learning rate. Taken: the loss, a mean over the global batch and the same on
  /// every rank, and how loss scaling fares.
  StepRecord record;
  std::int64_t samples = 0;  ///< over all ranks
  bool ends_epoch = false;   ///< the epoch's last step

  // ---- queued: of this rank; taken: of any rank
  bool stop = false;  ///< it was told to stop
  bool save = false;  ///< it asks for a checkpoint

  // ---- when it is taken
  bool save_asked_elsewhere = false;  ///< a rank asks for a checkpoint, and this one does not
  bool overflowed = false;            ///< a gradient was not finite
  bool corrupted = false;             ///< an earlier update of some rank wrote numbers that are not finite
};

/// A step: begin(), add() for each pass, send(), post(); take() gives the reports in the order of the steps.
/// Every rank makes the same calls.
class StepReports {
 public:
  /// `communicator` is borrowed. A step's loss is the sum over its ranks divided by `shares`. Where `device`
  /// runs ahead reports are taken some steps after they were posted.
  /// `phases`: the names of a step's, each of which has a loss; none where a step is one.
  StepReports(Communicator& communicator, int shares, const std::shared_ptr<Device>& device,
              std::vector<std::string> phases = {});
  ~StepReports();
  StepReports(const StepReports&) = delete;
  StepReports& operator=(const StepReports&) = delete;

  void begin();
  /// Adds `weight` · `loss` (floating, one element) to this rank's loss of the step, and of its phase number
  /// `phase`, on the device.
  void add(const Tensor& loss, double weight, std::size_t phase = 0);
  /// Begins to add the losses up over the ranks, and whether one wants to `stop` or to `save`, and what
  /// `guard` noted of the updates so far.
  void send(bool stop, bool save, const UpdateGuard& guard);
  /// Waits for the sums that send() began, only where the device does not run ahead: the loss, and whether an
  /// update was corrupted.
  std::pair<double, bool> sums(const Deadline& deadline);
  /// The step is queued. `scaler` may be null, else it is the guard. `kept` must live until the device is
  /// past this point.
  void post(const StepReport& report, const UpdateGuard& guard, const GradScaler* scaler,
            std::vector<std::shared_ptr<void>> kept);

  std::size_t waiting() const noexcept { return posted_.size(); }
  /// Whether take() would not wait.
  bool ready();
  /// The oldest report; waits for it. Throws PeerError, Error when it is not there by `deadline`, and what
  /// kernels found wrong with their input (Event::done).
  StepReport take(const Deadline& deadline);

 private:
  struct Posted {
    StepReport report;
    std::unique_ptr<Work> work;
    std::shared_ptr<double> values;  ///< pinned
    std::unique_ptr<Event> arrived;
    std::vector<std::shared_ptr<void>> kept;
  };
  View element(int index) const;
  View loss_of_phase(std::size_t phase) const;
  std::size_t bytes() const { return static_cast<std::size_t>(values_.numel()) * sizeof(double); }
  std::shared_ptr<double> pinned();

  Communicator& communicator_;
  std::shared_ptr<Device> device_;
  int shares_;
  std::vector<std::string> phases_;
  Tensor values_;  ///< f64: losses of the phases, loss, stop, save, corrupted, loss scale, skipped steps,
                   ///< overflow
  std::unique_ptr<Work> work_;
  std::vector<std::shared_ptr<double>> slots_;  ///< pinned; a free one has no other owner
  std::deque<Posted> posted_;                   ///< oldest first
};

}  // namespace dtrain
