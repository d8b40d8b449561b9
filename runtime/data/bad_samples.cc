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

std::int64_t BadSamples::next(std::int64_t index) const noexcept {
  const auto is_held_out = [this](std::int64_t at) {
    return !held_out_.empty() && held_out_[static_cast<std::size_t>(at)];
  };
  std::int64_t at = index;
  do {
    at = (at + 1) % size_;
  } while (is_held_out(at) != is_held_out(index));
  return at;
}

void BadSamples::all_bad(const DataError& error) {
  throw DataError(error.path(), error.offset_bytes(),
                  "a sample that can be read, to replace those of its split that cannot",
                  fmt::format("none; of the last one tried: {}", error.what()));
}

std::int64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(indices_.size());
}

}  // namespace dtrain
