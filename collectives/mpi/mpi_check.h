// The checker for MPI calls, and owned MPI communicators.
#pragma once

#include <mpi.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dtrain {

/// Result of an MPI call under MPI_ERRORS_RETURN.
struct MpiResult {
  explicit MpiResult(int returned) : code(returned) {}
  int code;
};

/// What an MPI library that reports a failure says.
class MpiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check(MpiResult result, std::string_view what) {
  if (result.code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(result.code, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw MpiError(std::string(what) + ": " + std::string(text.data(), static_cast<std::size_t>(length)) +
                 " (MPI code " + std::to_string(result.code) + ")");
}

}  // namespace dtrain
