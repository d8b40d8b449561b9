#include "collectives/p2p/check_span.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain::p2p {
namespace {

[[noreturn]] void refuse(std::string_view operation, std::string_view label, const std::string& what) {
  throw UsageError(fmt::format("{}('{}'): {}", operation, label, what));
}

}  // namespace

void check_span(const MemorySpan& span, std::string_view operation, std::string_view label) {
  if (span.count > 0 && span.data == nullptr) {
    refuse(operation, label, fmt::format("expected memory for {} elements, got a null pointer", span.count));
  }
  if (span.device != nullptr && span.device->type() != DeviceType::cpu) {
    refuse(operation, label,
           fmt::format("this backend needs host memory, got memory of {}; copy it to the host or use nccl",
                       span.device->name()));
  }
}

void check_spans(const MemorySpan& input, const MemorySpan& output, std::string_view operation,
                 std::string_view label) {
  check_span(input, operation, label);
  check_span(output, operation, label);
  if (input.dtype != output.dtype) {
    refuse(operation, label,
           fmt::format("expected one dtype, got {} in and {} out", dtrain::name_of(input.dtype),
                       dtrain::name_of(output.dtype)));
  }
}

void check_counts(std::string_view operation, std::string_view label, std::string_view which,
                  std::size_t count, std::size_t expected) {
  if (count != expected) {
    refuse(operation, label, fmt::format("{} must have {} elements, got {}", which, expected, count));
  }
}

void check_rank(std::string_view operation, std::string_view label, std::string_view which, int rank,
                int size) {
  if (rank < 0 || rank >= size) {
    refuse(operation, label, fmt::format("{} must be a rank in [0, {}), got {}", which, size, rank));
  }
}

void check_peer(std::string_view operation, std::string_view label, std::string_view which, int peer,
                int rank, int size) {
  check_rank(operation, label, which, peer, size);
  if (peer == rank)
    refuse(operation, label, fmt::format("{} must be another rank, got this one ({})", which, rank));
}

}  // namespace dtrain::p2p
