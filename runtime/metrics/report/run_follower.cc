#include "runtime/metrics/report/run_follower.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/metrics/report/pictures.h"
#include "runtime/metrics/report/read_file.h"
#include "runtime/metrics/report/trace_phases.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = 1 << 20;
constexpr std::size_t kRemembered = 64;
constexpr std::size_t kLargestFile = 16 << 20;  // of config.json, summary.json, a log
constexpr int kMostLogs = 16;
constexpr std::size_t kMostTroubles = 20;

std::string read_at(int fd, std::uint64_t offset, std::size_t bytes, const fs::path& path) {
  std::string piece(bytes, '\0');
  const auto got =
      check(Sys{::pread(fd, piece.data(), bytes, static_cast<off_t>(offset))}, "read " + path.string());
  piece.resize(static_cast<std::size_t>(got));
  return piece;
}

/// What changes when the file at `path` does.
std::string stamp(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "-;";
  return fmt::format("{} {} {}.{};", status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

/// What `read` makes of the file at `path`; where it is not what it should be, a note and nothing.
std::string text_at(const fs::path& path, std::vector<std::string>& notes,
                    std::string (*read)(const std::string& text, const std::string& path) = object_in) {
  const auto text = read_if_there(path, kLargestFile);
  if (!text) return {};
  try {
    return read(*text, path.string());
  } catch (const DataError& error) {
    notes.push_back(fmt::format("{}; what it says is left out.", error.what()));
    return {};
  }
}

LogFacts logs_of(const RunDirectory& run) {
  LogFacts all;
  for (int rank = 0; rank < kMostLogs; ++rank) {
    const auto text = read_if_there(run.logs() / fmt::format("rank-{}.log", rank), kLargestFile);
    if (!text) break;
    LogFacts one = log_facts(*text, kMostTroubles);
    if (rank == 0) all.starts = std::move(one.starts);
    for (std::string& trouble : one.troubles) {
      if (all.troubles.size() < kMostTroubles) all.troubles.push_back(std::move(trouble));
    }
  }
  return all;
}

}  // namespace

bool RunFollower::is_same_file(int fd) const {
  if (read_bytes_ == 0) return true;
  const std::size_t bytes = last_bytes_.size();
  return read_at(fd, read_bytes_ - bytes, bytes, run_.metrics()) == last_bytes_;
}

bool RunFollower::read_metrics() {
  std::error_code error;
  const bool there = fs::exists(run_.metrics(), error);
  if (!there && read_bytes_ == 0) return false;
  UniqueFd fd;
  if (there) {
    fd.reset(static_cast<int>(
        check(Sys{::open(run_.metrics().c_str(), O_RDONLY | O_CLOEXEC)}, "open " + run_.metrics().string())));
  }
  bool changed = false;
  if (!there || !is_same_file(fd.get())) {
    reader_ = MetricsReader();
    read_bytes_ = 0;
    last_bytes_.clear();
    changed = true;
  }
  while (there) {
    const std::string piece = read_at(fd.get(), read_bytes_, kPiece, run_.metrics());
    if (piece.empty()) break;
    reader_.add(piece);
    read_bytes_ += piece.size();
    last_bytes_ = (last_bytes_ + piece);
    last_bytes_.erase(0, last_bytes_.size() - std::min(last_bytes_.size(), kRemembered));
    changed = true;
  }
  return changed;
}

void RunFollower::read_facts() {
  report_ = {};
  report_.config = text_at(run_.config(), report_.notes);
  report_.summary = text_at(run_.summary(), report_.notes);
  report_.batch = text_at(run_.batch(), report_.notes, shown_batch);
  report_.evaluation = text_at(run_.evaluation(), report_.notes, shown_evaluation);
  report_.traced = trace_phases(run_.path());
  report_.log = logs_of(run_);
}

bool RunFollower::poll() {
  bool changed = read_metrics();
  std::string now =
      stamp(run_.config()) + stamp(run_.summary()) + stamp(run_.batch()) + stamp(run_.evaluation());
  for (int rank = 0; rank < kMostLogs; ++rank) {
    now += stamp(run_.logs() / fmt::format("rank-{}.log", rank));
    now += stamp(run_.path() / fmt::format("trace-rank{}.json", rank));
  }
  if (now != seen_) {
    read_facts();
    seen_ = std::move(now);
    changed = true;
  }
  return changed;
}

}  // namespace dtrain
