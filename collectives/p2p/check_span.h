// What every backend refuses before anything is sent.
#pragma once

#include <span>
#include <string_view>

#include "collectives/communicator.h"

namespace dtrain::p2p {

/// Each throws UsageError naming the operation, the label, what was expected and what came.
void check_span(const MemorySpan& span, std::string_view operation, std::string_view label);
void check_spans(const MemorySpan& input, const MemorySpan& output, std::string_view operation,
                 std::string_view label);
void check_counts(std::string_view operation, std::string_view label, std::string_view which,
                  std::size_t count, std::size_t expected);
void check_rank(std::string_view operation, std::string_view label, std::string_view which, int rank,
                int size);
/// Counts by rank of an all_to_all: one for each rank, `count` elements in all, as much to oneself as from.
void check_all_to_all(const MemorySpan& input, std::span<const std::size_t> sends, const MemorySpan& output,
                      std::span<const std::size_t> receives, int rank, int size, std::string_view label);
/// There is another rank.
void check_has_peers(std::string_view operation, std::string_view label, int size);
/// A rank other than this one.
void check_peer(std::string_view operation, std::string_view label, std::string_view which, int peer,
                int rank, int size);

}  // namespace dtrain::p2p
