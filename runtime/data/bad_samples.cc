#include "runtime/data/bad_samples.h"

#include <fmt/format.h>

namespace dtrain {

void BadSamples::found(std::int64_t index, const DataError& error) {
  if (what_ == OnBadSample::stop) throw DataError(error);
  const std::lock_guard lock(mutex_);
  if (!indices_.insert(index).second) return;
  const auto count = static_cast<std::int64_t>(indices_.size());
  if (count > most_) {
    throw DataError(error.path(), error.offset_bytes(),
                    fmt::format("at most {} samples to skip, one in a hundred", most_),
                    fmt::format("another one: {}", error.what()));
  }
  if (log_ != nullptr) {
    log_->write(LogLevel::warning,
                fmt::format("sample {} is skipped and replaced by the next one: {}", index, error.what()));
  }
}

std::int64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(indices_.size());
}

}  // namespace dtrain
