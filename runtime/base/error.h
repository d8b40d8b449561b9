// The error hierarchy every dtrain library throws. Expected outcomes (a child's exit, an expired wait that
// the caller asked about) are values, not errors. Only `main` turns an Error into a line and an exit code.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace dtrain {

/// Process exit codes of every dtrain program (docs/errors.md). A worker that died hands its own code on.
enum class ExitCode : int {
  ok = 0,
  failure = 1,   ///< anything that has no code of its own
  usage = 2,     ///< UsageError
  device = 3,    ///< DeviceError
  peer = 4,      ///< PeerError
  data = 5,      ///< DataError
  system = 6,    ///< SystemError
  requeue = 75,  ///< EX_TEMPFAIL: preempted after a checkpoint; start me again
};

/// Root of the hierarchy. The message says what, where, expected, got, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual ExitCode exit_code() const noexcept { return ExitCode::failure; }
};

/// The caller's mistake: the message names the option or argument, what was expected and what came.
class UsageError : public Error {
 public:
  using Error::Error;
  ExitCode exit_code() const noexcept override { return ExitCode::usage; }
};

/// An accelerator or one of its libraries failed; `code` is the library's own (CUDA, cuDNN, NCCL, oneDNN).
class DeviceError : public Error {
 public:
  DeviceError(const std::string& message, int code) : Error(message), code_(code) {}
  int code() const noexcept { return code_; }
  ExitCode exit_code() const noexcept override { return ExitCode::device; }

 private:
  int code_;
};

/// Why a group of ranks ended: the peer, the call it was noticed in and what happened. `rank` is -1 where the
/// culprit cannot be told.
struct PeerFailure {
  int rank = -1;               ///< the rank that is lost or disagrees
  std::string host;            ///< its host, empty when unknown
  std::string operation;       ///< all_reduce, broadcast, …
  std::uint64_t sequence = 0;  ///< number of the call on this communicator, from 1
  std::string tensor;          ///< caller's label: bucket or tensor name
  std::string what{};          ///< what happened, in words; empty where the error's message alone says it
};

/// A lost peer, a passed deadline or ranks that called different things. The group is dead: rebuild, never
/// repair.
class PeerError : public Error {
 public:
  PeerError(const std::string& message, PeerFailure failure) : Error(message), failure_(std::move(failure)) {}
  const PeerFailure& failure() const noexcept { return failure_; }
  ExitCode exit_code() const noexcept override { return ExitCode::peer; }

 private:
  PeerFailure failure_;
};

/// A file whose content is not what it must be. The message is built from the parts: path, offset, expected,
/// found.
class DataError : public Error {
 public:
  /// `offset_bytes` is where in the file the trouble is; pass -1 when it concerns the file as a whole.
  DataError(const std::string& path, std::int64_t offset_bytes, const std::string& expected,
            const std::string& found);
  const std::string& path() const noexcept { return path_; }
  std::int64_t offset_bytes() const noexcept { return offset_bytes_; }
  ExitCode exit_code() const noexcept override { return ExitCode::data; }

 private:
  std::string path_;
  std::int64_t offset_bytes_;
};

/// A system call failed; keeps errno.
class SystemError : public Error {
 public:
  /// `what` is the call and its object, e.g. "open /data/x"; the text of `error_number` is appended.
  SystemError(const std::string& what, int error_number);
  int error_number() const noexcept { return error_number_; }
  ExitCode exit_code() const noexcept override { return ExitCode::system; }

 private:
  int error_number_;
};

}  // namespace dtrain
