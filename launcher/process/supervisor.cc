// The rules of ending a group.
#include "launcher/process/supervisor.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

// A peer error follows the death it reports within this time.
constexpr std::chrono::milliseconds kConsequence{500};

constexpr int kRequeue = static_cast<int>(ExitCode::requeue);
constexpr int kPeer = static_cast<int>(ExitCode::peer);

}  // namespace

Supervisor::Supervisor(int workers, Policy policy)
    : policy_(policy), running_(workers), ends_(static_cast<std::size_t>(workers)) {}

bool Supervisor::ended_by_signal(int status) const {
  return signal_ && (exit_code_of(status) == 128 + *signal_ || exit_code_of(status) == 128 + SIGTERM ||
                     (killing_ && exit_code_of(status) == 128 + SIGKILL));
}

bool Supervisor::is_failure(int status) const {
  const int code = exit_code_of(status);
  if (code == 0 || ended_by_signal(status)) return false;
  return !(code == kRequeue && (policy_.own_codes || signal_));
}

Command Supervisor::kill(TimePoint now) {
  ending_ = killing_ = true;
  deadline_ = now + (running_ == 0 ? Duration(kInsistOnLeftovers) : Duration(kInsist));
  return {Command::Kind::kill_all, SIGKILL};
}

int Supervisor::running_workers() const {
  const auto workers = static_cast<std::ptrdiff_t>(ends_.size()) - policy_.servers;
  return static_cast<int>(std::count(ends_.begin(), ends_.begin() + workers, std::nullopt));
}

// Servers continue with the workers they have. Which can be done without, they know: those that cannot
// continue fail by themselves.
bool Supervisor::can_be_spared(int local_rank, int status) const {
  const bool worker = local_rank < static_cast<int>(ends_.size()) - policy_.servers;
  return policy_.servers > 0 && worker && !ending_ && WIFSIGNALED(status) && running_workers() > 0;
}

bool Supervisor::is_lost(int local_rank) const {
  return std::find(lost_.begin(), lost_.end(), local_rank) != lost_.end();
}

std::optional<TimePoint> Supervisor::return_due() const {
  if (ending_ || awaited_.empty() || returns_ >= policy_.returns) return std::nullopt;
  return ends_[static_cast<std::size_t>(awaited_.front())]->at + kReturn;
}

std::optional<int> Supervisor::take_return(TimePoint now) {
  const auto due = return_due();
  if (!due || now < *due) return std::nullopt;
  const int local_rank = awaited_.front();
  awaited_.erase(awaited_.begin());
  ++returns_;
  return local_rank;
}

void Supervisor::on_return(int local_rank) {
  if (!is_lost(local_rank)) return;
  std::erase(lost_, local_rank);
  ends_[static_cast<std::size_t>(local_rank)].reset();
  ++running_;
}

// The first failure that follows from a loss makes that the cause.
void Supervisor::count_losses(TimePoint now) {
  for (const int lost : lost_) {
    if (now - ends_[static_cast<std::size_t>(lost)]->at <= kMissed) failures_.push_back(lost);
  }
}

Command Supervisor::on_exit(int local_rank, int status, TimePoint now, bool needed) {
  auto& end = ends_[static_cast<std::size_t>(local_rank)];
  if (end) return {};
  end = WorkerEnd{status, now};
  --running_;
  if (is_failure(status) && !needed && can_be_spared(local_rank, status)) {
    lost_.push_back(local_rank);
    awaited_.push_back(local_rank);
    return {};
  }
  if (is_failure(status)) {
    if (failures_.empty()) count_losses(now);
    // After the first failure only what the launcher did not cause is of interest. SIGKILL it sends last.
    const int code = exit_code_of(status);
    const bool ours = (ending_ && code == 128 + SIGTERM) || (killing_ && code == 128 + SIGKILL);
    if (!ours) failures_.push_back(local_rank);
  }
  if (running_ == 0) {
    // The grace continues: what the workers started may still be saving.
    if (killing_) deadline_ = now + kInsistOnLeftovers;
    return {};
  }
  // Servers end by themselves when the last worker has gone.
  const bool only_servers = policy_.servers > 0 && running_workers() == 0;
  if (ending_ || (failures_.empty() && !only_servers)) return {};
  ending_ = true;
  const TimePoint by = now + policy_.failure_grace;
  deadline_ = deadline_ ? std::min(*deadline_, by) : by;
  return {Command::Kind::signal, SIGTERM};
}

Command Supervisor::on_leftovers(int in_background, TimePoint now) {
  left_ = true;
  if (ending_ || signal_) return {};  // they have been asked, or are asked in their turn
  if (in_background == 0 || !failures_.empty()) return end_leftovers(now);
  if (std::exchange(waits_, true)) return {};
  deadline_ = now + policy_.signal_grace;
  return {Command::Kind::await_leftovers, 0};
}

Command Supervisor::end_leftovers(TimePoint now) {
  ending_ = true;
  deadline_ = now + policy_.failure_grace;
  return {Command::Kind::signal, SIGTERM};
}

Command Supervisor::on_signal(int signal, TimePoint now) {
  if (signal_ && now - signal_at_ < kEcho) return {};
  if (all_gone() || killing_) return {};
  if (signal_ || ending_) {
    if (!signal_) signal_ = signal;
    return kill(now);
  }
  signal_ = signal;
  signal_at_ = now;
  deadline_ = now + policy_.signal_grace;
  return {Command::Kind::signal, signal};
}

Command Supervisor::on_stop(TimePoint now, Duration grace) {
  if (all_gone() || ending_) return {};
  ending_ = true;
  const TimePoint by = now + grace;
  deadline_ = deadline_ ? std::min(*deadline_, by) : by;
  return {Command::Kind::signal, SIGTERM};
}

Command Supervisor::on_kill(TimePoint now) {
  if (all_gone() || killing_) return {};
  return kill(now);
}

// A checkpoint that is cut off is lost work; one that hangs must not hold the job.
bool Supervisor::waits_for_saving(TimePoint now, bool saving) {
  if (!saving_until_) {
    if (!saving) return false;
    saving_until_ = now + policy_.saving_grace;
  }
  if (now >= *saving_until_ || (!saving && saved_)) return false;
  saved_ = !saving;
  deadline_ = std::min(*saving_until_, now + (saving ? Duration(kLookAgain) : Duration(kAfterSaving)));
  return true;
}

Command Supervisor::on_time(TimePoint now, bool saving) {
  if (!deadline_ || now < *deadline_) return {};
  if (!killing_) {
    const bool first = !saving_until_;
    if (!waits_for_saving(now, saving))
      return waits_ && !ending_ && !signal_ ? end_leftovers(now) : kill(now);
    return first ? Command{Command::Kind::await_saving, 0} : Command{};
  }
  if (!std::exchange(insisting_, true)) {
    deadline_ = now + (kGiveUp - kInsist);
    return {Command::Kind::replace_subreaper, SIGKILL};
  }
  deadline_.reset();
  return {Command::Kind::give_up, 0};
}

// The first to fail; but where that one only reports that it lost a peer, the peer's own end explains more.
std::optional<int> Supervisor::root_cause() const {
  if (failures_.empty()) return std::nullopt;
  const auto end_of = [&](int local_rank) { return *ends_[static_cast<std::size_t>(local_rank)]; };
  const WorkerEnd first = end_of(failures_.front());
  if (policy_.own_codes && exit_code_of(first.status) == kPeer) {
    for (const int other : failures_) {
      if (exit_code_of(end_of(other).status) != kPeer && end_of(other).at - first.at <= kConsequence)
        return other;
    }
  }
  return failures_.front();
}

bool Supervisor::is_consequence(int local_rank) const {
  const auto& end = ends_[static_cast<std::size_t>(local_rank)];
  return policy_.own_codes && end && exit_code_of(end->status) == kPeer;
}

GroupResult Supervisor::result() const {
  GroupResult result;
  result.signal = signal_;
  result.first_failed = root_cause();
  if (result.first_failed) {
    result.exit_code = exit_code_of(ends_[static_cast<std::size_t>(*result.first_failed)]->status);
    return result;
  }
  bool all_well = running_ == 0, requeue = false;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (is_lost(static_cast<int>(i))) continue;
    const int code = ends_[i] ? exit_code_of(ends_[i]->status) : -1;
    all_well = all_well && code == 0;
    requeue = requeue || code == kRequeue;
  }
  if (requeue) {
    result.exit_code = kRequeue;
  } else if (!all_well) {
    result.exit_code = signal_ ? 128 + *signal_ : static_cast<int>(ExitCode::failure);
  }
  return result;
}

}  // namespace dtrain::launcher
