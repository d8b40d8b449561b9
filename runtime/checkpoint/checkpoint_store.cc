// Puts checkpoints in place and takes old ones away, so that a kill between any two system calls leaves every
// name pointing at a complete checkpoint. Names that begin with a dot are never taken for one.
#include "runtime/checkpoint/checkpoint_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/durable_file.h"
#include "runtime/checkpoint/checkpoint_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";
constexpr const char* kStagedPrefix = ".staged-";      // being written
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

bool name_taken(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool try_lock(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK || errno == EINTR) return false;
  throw SystemError("flock", errno);
}

bool cannot_lock(int error_number) {
  return error_number == ENOSYS || error_number == EOPNOTSUPP || error_number == ENOLCK;
}

std::string holder_of(int fd) {
  char text[128] = {};
  const ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
  return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : "an unknown process";
}

void sign(int fd, const fs::path& path) {
  char host[65] = {};
  ::gethostname(host, sizeof host - 1);
  check(Sys{::ftruncate(fd, 0)}, "ftruncate " + path.string());
  write_all(fd, fmt::format("process {} on {}", ::getpid(), host), path);
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path directory, int keep, Log& log)
    : directory_(std::move(directory)), keep_(keep), log_(&log) {
  if (keep < 0) {
    throw UsageError(fmt::format("checkpoints to keep: expected at least 0 (0: all), got {}", keep));
  }
}

void CheckpointStore::begin_writing(std::uint64_t bytes_needed, const Deadline& deadline) {
  if (lock_) return;
  check_writable(directory_, bytes_needed);
  lock(deadline);
  clean_leftovers();
}

void CheckpointStore::lock(const Deadline& deadline) {
  const fs::path path = directory_ / kLockName;
  UniqueFd fd(static_cast<int>(
      check(Sys{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)}, "open " + path.string())));
  try {
    // flock(2) cannot wait until a moment; a predecessor that is being killed lets go within milliseconds.
    while (!try_lock(fd.get())) {
      if (deadline.expired()) {
        throw SystemError(
            fmt::format("{}: expected no other writer, found {}; wait for it, end it, or choose "
                        "another --run-dir",
                        directory_.string(), holder_of(fd.get())),
            EBUSY);
      }
      std::this_thread::sleep_for(std::min<Duration>(deadline.remaining(), std::chrono::milliseconds(10)));
    }
    sign(fd.get(), path);
  } catch (const SystemError& error) {
    if (!cannot_lock(error.error_number())) throw;
    log_->write(LogLevel::warning,
                fmt::format("{}: this file system has no locks; make sure that only one run "
                            "writes checkpoints there",
                            directory_.string()));
  }
  lock_ = std::move(fd);
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
    std::error_code error;
    fs::remove_all(path, error);
    if (error) throw SystemError("remove " + path.string(), error.value());
  }
  sync_directory(directory_);
}

fs::path CheckpointStore::save(const Snapshot& snapshot) {
  begin_writing(checkpoint_bytes(snapshot), Deadline::after(std::chrono::seconds(10)));
  const std::string name = checkpoint_name(snapshot.state.step);
  const fs::path staged = directory_ / (kStagedPrefix + name);
  const fs::path final_path = directory_ / name;
  std::error_code ignored;
  fs::remove_all(staged, ignored);
  try {
    check(Sys{::mkdir(staged.c_str(), 0777)}, "create " + staged.string());
    write_checkpoint_files(staged, snapshot);
    publish(staged, final_path);
  } catch (const SystemError& error) {
    fs::remove_all(staged, ignored);
    throw with_context(
        fmt::format("checkpoint of step {} was not saved, those before it are intact", snapshot.state.step),
        error);
  } catch (...) {
    fs::remove_all(staged, ignored);
    throw;
  }
  prune(snapshot.state.step);
  return final_path;
}

void CheckpointStore::publish(const fs::path& staged, const fs::path& final_path) {
  const std::string what = "rename " + staged.string() + " to " + final_path.string();
  if (!name_taken(final_path)) {
    check(Sys{::rename(staged.c_str(), final_path.c_str())}, what);
    sync_directory(directory_);
    return;
  }
  // The same step again. A directory cannot be renamed over a full one; exchange the two in one step.
  fs::path old = staged;
  if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) throw SystemError(what, errno);
    old = directory_ / (kReplacedPrefix + final_path.filename().string());
    std::error_code ignored;
    fs::remove_all(old, ignored);
    check(Sys{::rename(final_path.c_str(), old.c_str())}, "rename " + final_path.string());
    check(Sys{::rename(staged.c_str(), final_path.c_str())}, what);
  }
  sync_directory(directory_);
  std::error_code error;
  fs::remove_all(old, error);
  if (error) log_->write(LogLevel::warning, "remove " + old.string() + ": " + error.message());
}

std::vector<CheckpointEntry> CheckpointStore::list() const {
  std::map<std::int64_t, fs::path> by_step;
  for (const fs::path& path : names_in(directory_)) {
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

std::optional<Checkpoint> CheckpointStore::latest() const {
  auto entries = list();
  std::reverse(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    try {
      Checkpoint checkpoint = load_checkpoint(entry.path);
      if (checkpoint.state.step != entry.step) {
        throw DataError(entry.path.string(), -1, fmt::format("a checkpoint of step {}", entry.step),
                        fmt::format("step {} inside", checkpoint.state.step));
      }
      return checkpoint;
    } catch (const Error& error) {
      log_->write(LogLevel::warning,
                  fmt::format("checkpoint refused, trying the one before: {}", error.what()));
    }
  }
  return std::nullopt;
}

// What was just saved always stays, even when newer steps of an abandoned future are there.
void CheckpointStore::prune(std::int64_t just_saved) {
  if (keep_ == 0) return;
  auto entries = list();
  std::vector<fs::path> victims;
  auto excess = static_cast<std::ptrdiff_t>(entries.size()) - keep_;
  for (const auto& entry : entries) {
    if (excess <= 0) break;
    if (entry.step == just_saved) continue;
    victims.push_back(entry.path);
    --excess;
  }
  try {
    discard(victims);
  } catch (const SystemError& error) {
    // The new checkpoint is safe; old ones that stay are only a matter of space.
    log_->write(LogLevel::warning, fmt::format("old checkpoints were not removed: {}", error.what()));
  }
}

void CheckpointStore::discard_after(std::int64_t step) {
  begin_writing(0, Deadline::after(std::chrono::seconds(10)));
  std::vector<fs::path> victims;
  for (const auto& entry : list()) {
    if (entry.step > step) victims.push_back(entry.path);
  }
  discard(victims);
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
