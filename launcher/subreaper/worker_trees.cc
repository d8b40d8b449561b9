#include "launcher/subreaper/worker_trees.h"

#include <signal.h>

#include <algorithm>
#include <set>

namespace dtrain::launcher {
namespace {

bool is_alive(const Process& process) { return process.state != 'Z' && process.state != 'X'; }

// What a key sends to everything in the foreground; programs count on it.
bool comes_from_keyboard(int signal) { return signal == SIGINT || signal == SIGQUIT; }

}  // namespace

WorkerTrees::WorkerTrees(pid_t subreaper, int workers, MannerOf manner_of)
    : subreaper_(subreaper),
      manner_of_(std::move(manner_of)),
      firsts_(static_cast<std::size_t>(workers), 0),
      running_(static_cast<std::size_t>(workers), false) {}

void WorkerTrees::on_start(int worker, pid_t first) {
  firsts_[static_cast<std::size_t>(worker)] = first;
  running_[static_cast<std::size_t>(worker)] = true;
  sessions_[first] = worker;
}

void WorkerTrees::on_end(int worker) { running_[static_cast<std::size_t>(worker)] = false; }

bool WorkerTrees::is_running(int worker) const {
  return worker != kNobody && running_[static_cast<std::size_t>(worker)];
}

bool WorkerTrees::is_first(const Process& process) const {
  const auto found = std::find(firsts_.begin(), firsts_.end(), process.pid);
  return found != firsts_.end() && running_[static_cast<std::size_t>(found - firsts_.begin())];
}

// By what it was seen as before, its parent, its session, its group.
int WorkerTrees::owner_of(const Process& process, const std::map<pid_t, int>& by_pid) const {
  if (const auto seen = known_.find(key_of(process)); seen != known_.end() && seen->second.worker != kNobody)
    return seen->second.worker;
  if (const auto parent = by_pid.find(process.parent); parent != by_pid.end()) return parent->second;
  for (const pid_t number : {process.session, process.group}) {
    if (const auto found = sessions_.find(number); found != sessions_.end()) return found->second;
  }
  return kNobody;
}

void WorkerTrees::look(std::vector<Process> below) {
  std::map<pid_t, int> by_pid;
  std::map<Key, Known> known;
  for (const Process& process : below) {
    const int owner = owner_of(process, by_pid);
    by_pid[process.pid] = owner;
    const auto seen = known_.find(key_of(process));
    Known& now = known[key_of(process)];
    if (seen != known_.end()) now = seen->second;
    now.worker = owner;
    // Orphans of a session that part of the tree has moved to are known by it.
    if (owner != kNobody && process.session > 0) sessions_.emplace(process.session, owner);
  }
  known_ = std::move(known);
  below_ = std::move(below);
}

std::vector<Process> WorkerTrees::started_by(int worker) const {
  std::vector<Process> found;
  for (const Process& process : below_) {
    if (is_alive(process) && !is_first(process) && known_.at(key_of(process)).worker == worker)
      found.push_back(process);
  }
  return found;
}

// Nobody but its parent is told that a process has been stopped; what /proc shows is told to all.
std::vector<WorkerTrees::Stop> WorkerTrees::take_stops() {
  std::vector<Stop> news;
  std::set<pid_t> still;
  std::set<Key> now;
  for (const Process& process : below_) {
    if (process.state != 'T') continue;
    still.insert(process.pid);
    const int worker = known_.at(key_of(process)).worker;
    if (worker == kNobody || is_first(process) || still.contains(process.parent)) continue;
    now.insert(key_of(process));
    const auto [stop, is_new] = stopped_.try_emplace(key_of(process), Stop{worker, process});
    if (is_new) news.push_back(stop->second);
  }
  std::erase_if(stopped_, [&](const auto& entry) {
    if (now.contains(entry.first)) return false;
    news.push_back(entry.second);
    news.back().continued = true;
    return true;
  });
  return news;
}

std::vector<std::pair<int, Process>> WorkerTrees::in_background() const {
  std::vector<std::pair<int, Process>> found;
  for (const Process& process : below_) {
    const auto first = std::find(firsts_.begin(), firsts_.end(), process.session);
    const int worker = static_cast<int>(first - firsts_.begin());
    if (is_alive(process) && first != firsts_.end() && !is_running(worker))
      found.emplace_back(worker, process);
  }
  return found;
}

std::vector<const Process*> WorkerTrees::children_of(pid_t parent) const {
  std::vector<const Process*> children;
  for (const Process& process : below_) {
    if (process.parent == parent) children.push_back(&process);
  }
  return children;
}

void WorkerTrees::begin_ending(int signal) {
  signal_ = signal;
  for (auto& [key, known] : known_) {
    known.manner.reset();
    known.was_there = true;
  }
}

// False where the rest of the worker must wait for this process.
bool WorkerTrees::end_from(const Process& process, bool orphaned, Round& round) const {
  const Known& known = known_.at(key_of(process));
  const Manner manner = known.manner ? *known.manner : manner_of_(process, signal_);
  const std::size_t place = round.found.size();
  const bool is_new = !known.manner && is_alive(process);
  if (is_new) {
    // What a shell has put into the background ignores Ctrl-C.
    const bool deaf = manner == Manner::ignores && orphaned;
    round.found.push_back({process, deaf ? SIGTERM : signal_, manner});
  }
  if (is_alive(process) && manner == Manner::handles && !comes_from_keyboard(signal_)) {
    ++round.handlers;
    round.with_handler.insert(known.worker);
    return false;
  }
  const int handlers = round.handlers;
  bool free = true;
  for (const Process* child : children_of(process.pid)) {
    const bool came_since = is_alive(process) && !known_.at(key_of(*child)).was_there;
    free = !came_since && end_from(*child, orphaned, round) && free;
  }
  if (is_new) round.found[place].leads = round.handlers > handlers;
  return free;
}

// But for those that would die beside one that handles the signal: it may print to them, or read from them.
std::vector<Addressed> WorkerTrees::ask(const Round& round) {
  std::vector<Addressed> asked;
  for (const auto& [process, signal, manner, leads] : round.found) {
    Known& known = known_.at(key_of(process));
    const bool stands_by = manner == Manner::dies && !leads && !is_first(process) && known.worker != kNobody;
    if (stands_by && round.with_handler.contains(known.worker)) continue;
    known.manner = manner;
    asked.push_back({process, signal});
  }
  return asked;
}

std::vector<Addressed> WorkerTrees::to_end() {
  Round round;
  const std::vector<const Process*> roots = children_of(subreaper_);
  std::vector<bool> waited_for(firsts_.size(), false);
  for (const Process* root : roots) {
    const int worker = known_.at(key_of(*root)).worker;
    if (is_first(*root) && !end_from(*root, false, round))
      waited_for[static_cast<std::size_t>(worker)] = true;
  }
  const bool any_running = std::find(running_.begin(), running_.end(), true) != running_.end();
  for (const Process* root : roots) {
    if (is_first(*root)) continue;
    const int worker = known_.at(key_of(*root)).worker;
    // Whose nobody knows is asked last.
    if (worker == kNobody ? any_running : waited_for[static_cast<std::size_t>(worker)]) continue;
    end_from(*root, !is_running(worker), round);
  }
  return ask(round);
}

// False where the rest of the worker is none of our business.
bool WorkerTrees::tell_from(const Process& process, int signal, std::vector<Addressed>& told) const {
  const Manner manner = manner_of_(process, signal);
  const bool takes = manner == Manner::handles || manner == Manner::waits;
  if (takes && is_alive(process)) told.push_back({process, signal});
  if (manner == Manner::handles) return false;
  bool free = true;
  for (const Process* child : children_of(process.pid)) free = tell_from(*child, signal, told) && free;
  return free;
}

std::vector<Addressed> WorkerTrees::to_tell(int worker, int signal) const {
  std::vector<Addressed> told;
  std::vector<const Process*> roots = children_of(subreaper_);
  std::erase_if(roots, [&](const Process* root) { return known_.at(key_of(*root)).worker != worker; });
  std::stable_partition(roots.begin(), roots.end(), [&](const Process* root) { return is_first(*root); });
  for (const Process* root : roots) {
    if (!tell_from(*root, signal, told)) break;
  }
  return told;
}

}  // namespace dtrain::launcher
