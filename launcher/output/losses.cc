// Two moments are told, the first loss and the end of losing; what lies between is counted.
#include "launcher/output/losses.h"

#include <cerrno>
#include <cstring>

namespace dtrain::launcher {
namespace {

std::string cause(int error) {
  return error == ETIMEDOUT ? "it accepts no more output (a disk that hangs, a FIFO without a reader)"
                            : std::strerror(error);
}

}  // namespace

void Losses::failed(int error, std::uint64_t bytes) noexcept {
  error_ = last_error_ = error;
  bytes_ += bytes;
}

void Losses::worked() noexcept {
  over_ = over_ || error_ != 0;
  error_ = 0;
}

void Losses::end() noexcept { over_ = over_ || bytes_ > told_bytes_; }

std::optional<std::string> Losses::take_news(const std::string& stream) {
  if (over_) {
    const std::uint64_t lost = bytes_ - told_bytes_;
    over_ = false;
    told_error_ = error_;
    told_bytes_ = bytes_;
    return stream + ": " + std::to_string(lost) + " bytes of output were dropped: " + cause(last_error_);
  }
  if (error_ == 0 || error_ == told_error_) return std::nullopt;
  told_error_ = error_;
  return stream + " cannot be written to: " + cause(error_) +
         "; the workers continue, and their output is dropped until it can";
}

}  // namespace dtrain::launcher
