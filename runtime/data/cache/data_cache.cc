// Finding and building entries; one process a node builds an entry while the others wait on a lock file.
#include "runtime/data/cache/data_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/data/cache/cache_entry.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr auto kNap = std::chrono::milliseconds(3);
constexpr auto kLeftoverAge = std::chrono::minutes(10);

std::optional<fs::path> absolute_path_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || value[0] != '/') return std::nullopt;
  return fs::path(value);
}

// Creates the folder, and what is missing above it, for this user alone.
void make_private_folder(const fs::path& directory) {
  std::error_code problem;
  if (fs::is_directory(directory, problem)) return;
  if (directory.has_parent_path()) fs::create_directories(directory.parent_path(), problem);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    throw cache::CacheError("create folder: " + std::generic_category().message(errno));
  }
}

// Holds an exclusive lock on `path`. flock(2) has no timeout, hence the short naps; the kernel drops the lock
// when its holder dies.
UniqueFd lock_file(const fs::path& path, const Deadline& deadline) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) throw cache::CacheError("open lock file: " + std::generic_category().message(errno));
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) throw cache::CacheError("flock: " + std::generic_category().message(errno));
    if (deadline.expired()) throw cache::CacheError("another process is still writing it");
    std::this_thread::sleep_for(kNap);
  }
  return fd;
}

// Removes what a killed writer left behind. Called under the entry's lock; the age spares a writer on another
// node whose file system does not share locks.
void sweep_leftovers(const fs::path& entry) {
  const std::string prefix = entry.filename().string() + ".tmp-";
  std::error_code ignored;
  for (fs::directory_iterator it(entry.parent_path(), ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    if (!it->path().filename().string().starts_with(prefix)) continue;
    const auto written = fs::last_write_time(it->path(), ignored);
    if (!ignored && fs::file_time_type::clock::now() - written > kLeftoverAge)
      fs::remove(it->path(), ignored);
  }
}

}  // namespace

fs::path default_data_cache_directory() {
  if (const auto cache_home = absolute_path_in("XDG_CACHE_HOME")) return *cache_home / "dtrain" / "data";
  if (const auto home = absolute_path_in("HOME")) return *home / ".cache" / "dtrain" / "data";
  return {};
}

DataCache::DataCache(fs::path directory, Log& log, Duration patience)
    : directory_(std::move(directory)), log_(log), patience_(patience) {}

fs::path DataCache::entry_path(const SourceIdentity& source) const {
  return directory_ / cache::entry_name(source);
}

void DataCache::note(LogLevel level, const std::string& what) const {
  log_.write(level, "data cache " + directory_.string() + ": " + what);
}

std::optional<Content> DataCache::find(const SourceIdentity& source) const {
  if (directory_.empty()) return std::nullopt;
  const fs::path path = entry_path(source);
  cache::Refusal refusal;
  try {
    auto content = cache::open_entry(path, source, refusal);
    if (content) return content;
  } catch (const std::exception& error) {
    refusal.reason = error.what();
  }
  if (!refusal.reason.empty()) {
    note(LogLevel::warning, "entry " + path.filename().string() + " is not used: " + refusal.reason);
  }
  return std::nullopt;
}

std::optional<Content> DataCache::build(const SourceIdentity& source, std::uint64_t content_bytes,
                                        const Producer& produce) {
  if (directory_.empty()) return std::nullopt;
  const fs::path path = entry_path(source);
  try {
    make_private_folder(directory_);
    const UniqueFd lock = lock_file(path.string() + ".lock", Deadline::after(patience_));
    if (auto content = find(source)) return content;  // written while we waited
    sweep_leftovers(path);
    cache::write_entry(path, source, content_bytes, produce);
  } catch (const cache::CacheError& failure) {
    note(LogLevel::info, "cannot keep " + source.path + ", decoding it in memory: " + failure.what());
    return std::nullopt;
  }
  return find(source);
}

}  // namespace dtrain
