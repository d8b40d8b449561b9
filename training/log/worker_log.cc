#include "training/log/worker_log.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace dtrain {

WorkerLog::WorkerLog(std::string prefix)
    : prefix_(std::move(prefix)), console_(STDERR_FILENO, prefix_, LogLevel::info) {}

void WorkerLog::attach(const std::filesystem::path& path) noexcept {
  file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file_) {
    file_log_.emplace(file_.get(), prefix_, LogLevel::debug);
  } else {
    console_.write(LogLevel::warning, std::string("no log file: ") + std::strerror(errno));
  }
}

void WorkerLog::write(LogLevel level, std::string_view message) noexcept {
  console_.write(level, message);
  note(level, message);
}

void WorkerLog::note(LogLevel level, std::string_view message) noexcept {
  if (file_log_) file_log_->write(level, message);
}

}  // namespace dtrain
