#include "collectives/p2p/check_span.h"

#include <fmt/format.h>

#include <numeric>

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

void check_all_to_all(const MemorySpan& input, std::span<const std::size_t> sends, const MemorySpan& output,
                      std::span<const std::size_t> receives, int rank, int size, std::string_view label) {
  const auto check_side = [&](const MemorySpan& span, std::span<const std::size_t> counts,
                              std::string_view which) {
    if (counts.size() != static_cast<std::size_t>(size)) {
      refuse("all_to_all", label,
             fmt::format("expected a count for each of {} ranks to {}, got {}", size, which, counts.size()));
    }
    check_counts("all_to_all", label, which == "send" ? "input" : "output", span.count,
                 std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  };
  check_side(input, sends, "send");
  check_side(output, receives, "receive");
  const auto own = static_cast<std::size_t>(rank);
  if (sends[own] != receives[own]) {
    refuse("all_to_all", label,
           fmt::format("expected to receive from itself what it sends itself, got {} and {} elements",
                       receives[own], sends[own]));
  }
}

void check_rank(std::string_view operation, std::string_view label, std::string_view which, int rank,
                int size) {
  if (rank < 0 || rank >= size) {
    refuse(operation, label, fmt::format("{} must be a rank in [0, {}), got {}", which, size, rank));
  }
}

void check_has_peers(std::string_view operation, std::string_view label, int size) {
  if (size < 2) refuse(operation, label, "expected another rank to receive from, got a group of one");
}

void check_peer(std::string_view operation, std::string_view label, std::string_view which, int peer,
                int rank, int size) {
  check_rank(operation, label, which, peer, size);
  if (peer == rank)
    refuse(operation, label, fmt::format("{} must be another rank, got this one ({})", which, rank));
}

}  // namespace dtrain::p2p
