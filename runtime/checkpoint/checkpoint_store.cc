// Puts checkpoints in place and takes old ones away, so that a kill between any two system calls leaves every
// name pointing at a complete checkpoint. Names that begin with a dot are never taken for one.
#include "runtime/checkpoint/checkpoint_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <random>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/checkpoint/input_file.h"
#include "runtime/checkpoint/writer_lock.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";
constexpr const char* kStagedPrefix = ".staged-";      // being written
constexpr const char* kBestName = "best";              // a link to the best one
constexpr const char* kTrashPrefix = ".trash-";        // being deleted
constexpr const char* kReplacedPrefix = ".replaced-";  // still good until its successor has the name

std::vector<fs::path> names_in(const fs::path& directory) {
  std::vector<fs::path> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) names.push_back(it->path());
  if (error) throw SystemError("read directory " + directory.string(), error.value());
  return names;
}

std::vector<fs::path> names_patiently(const fs::path& directory) {
  std::vector<fs::path> names;
  with_patience([&] { names = names_in(directory); });
  return names;
}

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

SystemError not_saved(std::int64_t step, const SystemError& error) {
  return with_context(fmt::format("checkpoint of step {} was not saved, those before it are intact", step),
                      error);
}

bool is_shared_by_machines(const fs::path& directory) {
  // linux/magic.h has only some of them: NFS, SMB, SMB2, CIFS, FUSE, Lustre, Ceph, GPFS, BeeGFS, AFS.
  constexpr std::uint32_t kShared[] = {0x6969,     0x517b,     0xfe534d42, 0xff534d42, 0x65735546,
                                       0x0bd00bd0, 0x00c36400, 0x47504653, 0x19830326, 0x5346414f};
  struct statfs status {};
  if (::statfs(directory.c_str(), &status) != 0) return true;
  return std::ranges::find(kShared, static_cast<std::uint32_t>(status.f_type)) != std::end(kShared);
}

// A link that is there is replaced in one step. The checkpoint that it leads to counts, not the link: trouble
// with it costs no checkpoint.
void link_best(const fs::path& directory, const TrainingState& state, Log& log) {
  const auto best = state.schedule.find(kBestStep);
  if (best == state.schedule.end()) return;
  const fs::path link = directory / kBestName, fresh = directory / (std::string(".") + kBestName);
  const std::string target = checkpoint_name(static_cast<std::int64_t>(best->second));
  std::error_code error;
  if (!fs::exists(directory / target, error) || fs::read_symlink(link, error) == target) return;
  fs::remove(fresh, error);
  error.clear();
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error)
    log.write(LogLevel::warning,
              fmt::format("{} does not lead to {}: {}", link.string(), target, error.message()));
}

}  // namespace

Duration default_lock_wait(const fs::path& directory) {
  return is_shared_by_machines(directory) ? std::chrono::seconds(100) : std::chrono::seconds(10);
}

CheckpointStore::CheckpointStore(fs::path directory, int keep, Log& log)
    : directory_(std::move(directory)), keep_(keep), log_(&log) {
  if (keep < 0) {
    throw UsageError(fmt::format("checkpoints to keep: expected at least 0 (0: all), got {}", keep));
  }
}

void CheckpointStore::begin_writing(std::uint64_t bytes_needed, const Deadline& deadline,
                                    Duration say_after) {
  const bool is_new = !lock_;
  make_directories(directory_);
  UniqueFd taken;
  if (is_new) taken = take_writer_lock(directory_ / kLockName, deadline, say_after, *log_);
  permit_.check("writing checkpoints to " + directory_.string());
  if (is_new || bytes_needed > 0) check_writable(directory_, bytes_needed);
  if (!is_new) return;
  clean_leftovers();
  start_ = RunGenerations::read(directory_).newest();
  lock_ = std::move(taken);
  writer_id_ = random_id();
  saves_ = 0;
}

void CheckpointStore::begin_writing(std::uint64_t bytes_needed) {
  make_directories(directory_);
  begin_writing(bytes_needed, Deadline::after(default_lock_wait(directory_)));
}

void CheckpointStore::clean_leftovers() {
  for (const fs::path& path : names_in(directory_)) {
    const std::string name = path.filename().string();
    if (name.starts_with(kReplacedPrefix)) {
      const fs::path final_path = directory_ / name.substr(std::string_view(kReplacedPrefix).size());
      if (!name_taken(final_path)) {
        check(Sys{::rename(path.c_str(), final_path.c_str())}, "rename " + path.string());
        continue;
      }
    } else if (!name.starts_with(kStagedPrefix) && !name.starts_with(kTrashPrefix)) {
      continue;
    }
    log_->write(LogLevel::info, "removing what an interrupted run left: " + path.string());
    // What cannot be removed now (a file server keeps what somebody still reads) is only a matter of space.
    std::error_code error;
    fs::remove_all(path, error);
    if (error) log_->write(LogLevel::warning, "remove " + path.string() + ": " + error.message());
  }
  sync_directory(directory_);
}

const std::string& CheckpointStore::writer_id() const {
  if (!lock_) throw UsageError("checkpoint writer's id: expected begin_writing before");
  return writer_id_;
}

void CheckpointStore::write_for(std::string writer_id) {
  writer_id_ = std::move(writer_id);
  saves_ = 0;
}

void CheckpointStore::prepare(const Snapshot& snapshot, const Shard& shard) {
  ++saves_;  // also for a save that fails here: the other ranks count it
  if (writer_id_.empty()) throw UsageError("checkpoint shard: expected begin_writing or write_for before");
  permit_.check(fmt::format("checkpoint of step {}", snapshot.state.step));
  // What cannot be written is refused before anything is touched.
  for (const std::vector<NamedView>* tensors : {&snapshot.model, &snapshot.optimizer})
    safetensors_bytes(*tensors);
  staged_ = directory_ / fmt::format("{}{}-{}-{}", kStagedPrefix, checkpoint_name(snapshot.state.step),
                                     writer_id_, saves_);
  try {
    if (::mkdir(staged_.c_str(), 0777) == -1 && errno != EEXIST)
      throw SystemError("create " + staged_.string(), errno);
    write_shard_files(staged_, snapshot, shard);
  } catch (const SystemError& error) {
    remove_shard_files(staged_, shard);
    throw not_saved(snapshot.state.step, error);
  } catch (...) {
    remove_shard_files(staged_, shard);
    throw;
  }
}

fs::path CheckpointStore::commit(const TrainingState& state, int shards) {
  if (!lock_) throw UsageError("checkpoint commit: expected begin_writing before");
  const fs::path final_path = directory_ / checkpoint_name(state.step);
  TrainingState of_this_start = state;
  if (start_ > 0) of_this_start.extra[kStartEntry] = std::to_string(start_);
  try {
    write_commit_files(staged_, of_this_start, shards);
    permit_.check(fmt::format("checkpoint of step {}", state.step));  // the last look before it counts
    publish(final_path, state.step);
  } catch (const SystemError& error) {
    abandon();
    throw not_saved(state.step, error);
  } catch (...) {
    abandon();
    throw;
  }
  link_best(directory_, state, *log_);
  prune(state.step);
  return final_path;
}

void CheckpointStore::abandon() {
  if (staged_.empty()) return;
  std::error_code error;
  fs::remove_all(staged_, error);
  if (error) log_->write(LogLevel::warning, "remove " + staged_.string() + ": " + error.message());
}

fs::path CheckpointStore::save(const Snapshot& snapshot) {
  if (!lock_) begin_writing(checkpoint_bytes(snapshot));
  try {
    prepare(snapshot, {});
  } catch (...) {
    abandon();
    throw;
  }
  return commit(snapshot.state, 1);
}

// A process that was stopped, and whose lock the file server has given to another one, may come here late.
void CheckpointStore::refuse_a_later_starts(const fs::path& checkpoint, std::int64_t step) const {
  std::int64_t theirs = 0;
  try {
    theirs = start_of(load_checkpoint(checkpoint, CheckValues::later).state);
  } catch (const DataError&) {
    return;  // damaged: it may be replaced
  }
  if (theirs <= start_) return;
  throw PeerError(
      fmt::format(
          "checkpoint of step {} was not saved: start {} of the run has written {} meanwhile, and this "
          "is start {}, which was left behind; nothing was replaced",
          step, theirs, checkpoint.string(), start_),
      {.host = {}, .operation = "save a checkpoint", .tensor = {}});
}

void CheckpointStore::publish(const fs::path& final_path, std::int64_t step) {
  const std::string what = "rename " + staged_.string() + " to " + final_path.string();
  // Renames nothing over an empty folder either, which nobody but another writer could have made.
  const bool is_new =
      ::renameat2(AT_FDCWD, staged_.c_str(), AT_FDCWD, final_path.c_str(), RENAME_NOREPLACE) == 0;
  const bool unknown = !is_new && (errno == EINVAL || errno == ENOSYS);
  if (!is_new && !unknown && errno != EEXIST) throw SystemError(what, errno);
  if (unknown && !name_taken(final_path)) {
    check(Sys{::rename(staged_.c_str(), final_path.c_str())}, what);
  } else if (!is_new) {
    const fs::path old = replace(final_path, step);
    staged_.clear();             // it may be the old one's name now, and that is good until
    sync_directory(directory_);  // the new one is durable
    std::error_code error;
    fs::remove_all(old, error);
    if (error) log_->write(LogLevel::warning, "remove " + old.string() + ": " + error.message());
    return;
  }
  staged_.clear();
  sync_directory(directory_);
}

// The same step again: returns where the old one is now. A directory cannot be renamed over a full one;
// exchanges the two in one step.
fs::path CheckpointStore::replace(const fs::path& final_path, std::int64_t step) {
  const std::string what = "rename " + staged_.string() + " to " + final_path.string();
  refuse_a_later_starts(final_path, step);
  const auto exchange = [&] {
    return ::renameat2(AT_FDCWD, staged_.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0;
  };
  if (exchange()) {
    try {
      refuse_a_later_starts(staged_, step);
    } catch (...) {
      // It came between the look and the exchange.
      if (!exchange()) throw SystemError(what + " back", errno);
      throw;
    }
    return staged_;
  }
  if (errno != EINVAL && errno != ENOSYS) throw SystemError(what, errno);
  const fs::path old = directory_ / (kReplacedPrefix + final_path.filename().string());
  std::error_code ignored;
  fs::remove_all(old, ignored);
  check(Sys{::rename(final_path.c_str(), old.c_str())}, "rename " + final_path.string());
  check(Sys{::rename(staged_.c_str(), final_path.c_str())}, what);
  return old;
}

std::vector<CheckpointEntry> CheckpointStore::list() const {
  std::map<std::int64_t, fs::path> by_step;
  for (const fs::path& path : names_patiently(directory_)) {
    std::string name = path.filename().string();
    const bool replaced = name.starts_with(kReplacedPrefix);
    if (replaced) name.erase(0, std::string_view(kReplacedPrefix).size());
    const std::int64_t step = step_of_name(name);
    if (step < 0) continue;
    if (replaced) {
      by_step.emplace(step, path);  // only while its successor does not have the name
    } else {
      by_step[step] = path;
    }
  }
  std::vector<CheckpointEntry> entries;
  for (auto& [step, path] : by_step) entries.push_back({step, std::move(path)});
  return entries;
}

// What ranks of earlier starts, not quite dead, write is never committed; nor is what was abandoned.
void CheckpointStore::sweep_staged() {
  for (const fs::path& path : names_in(directory_)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kStagedPrefix)) continue;
    // Of our own, later ones than what was just committed may be in writing.
    const std::size_t at = name.find("-" + writer_id_ + "-");
    std::uint64_t save = 0;
    if (at != std::string::npos) {
      const char* begin = name.data() + at + writer_id_.size() + 2;
      std::from_chars(begin, name.data() + name.size(), save);
      if (save > saves_) continue;
    }
    std::error_code error;
    fs::remove_all(path, error);
    if (error) log_->write(LogLevel::warning, "remove " + path.string() + ": " + error.message());
  }
}

// What was just saved supersedes those of earlier steps and no others.
void CheckpointStore::prune(std::int64_t just_saved) {
  try {
    if (!permit_.holds()) return;
    sweep_staged();
    if (keep_ == 0) return;
    std::vector<fs::path> victims;
    for (const auto& entry : list()) {
      if (entry.step <= just_saved) victims.push_back(entry.path);
    }
    const auto kept = std::min(victims.size(), static_cast<std::size_t>(keep_));
    victims.resize(victims.size() - kept);  // the oldest come first
    std::error_code ignored;
    const fs::path best = fs::read_symlink(directory_ / kBestName, ignored);
    std::erase_if(victims, [&](const fs::path& victim) { return victim.filename() == best; });
    discard(victims);
  } catch (const SystemError& error) {
    // The new checkpoint is safe; old ones that stay are only a matter of space.
    log_->write(LogLevel::warning, fmt::format("old checkpoints were not removed: {}", error.what()));
  }
}

// Renames first and makes that durable, so that one that is half deleted never has a checkpoint's name.
void CheckpointStore::discard(const std::vector<fs::path>& victims) {
  if (victims.empty()) return;
  std::vector<fs::path> trash;
  for (const auto& victim : victims) {
    trash.push_back(directory_ / (kTrashPrefix + victim.filename().string()));
    std::error_code ignored;
    fs::remove_all(trash.back(), ignored);
    check(Sys{::rename(victim.c_str(), trash.back().c_str())}, "rename " + victim.string());
  }
  sync_directory(directory_);
  for (const auto& path : trash) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) throw SystemError("remove " + path.string(), error.value());
  }
}

}  // namespace dtrain
