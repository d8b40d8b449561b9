// Gradients cross the network in half the bytes: cast, added up, cast back (torch's fp16_compress_hook and
// bf16_compress_hook). For the buckets of data parallelism.
#pragma once

#include <memory>
#include <string_view>

#include "parallel/sync/hooks/comm_hook.h"

namespace dtrain {

/// What ReducerOptions::exchange takes to send float32 buckets as `dtype`, f16 or bf16; other buckets go as
/// they are. Buckets hold gradients divided by the number of ranks before they are cast. Ranks' values are
/// added in float32 and rounded once (nccl: as it does). Two things are lost: digits (f16 keeps 11 bits, bf16
/// 8), and with f16 what is below 6e-8 or above 65504, the latter becoming infinite on all ranks. Throws
/// UsageError for other dtypes.
///
///     const auto strategy = make_data_parallel(context, {.exchange = compress_to(DType::bf16)});
std::shared_ptr<CommHook> compress_to(DType dtype);

/// How gradients are compressed, as a value.
struct Compression {
  enum class Kind { none, fp16, bf16, power_sgd };
  Kind kind = Kind::none;
  int rank = 0;  ///< of power_sgd
};

/// "none", "fp16", "bf16" or "powersgd:R". Throws UsageError for any other text.
Compression compression_named(std::string_view text);

/// The exchange that does it; null for none. `seed` as PowerSgdOptions::seed.
std::shared_ptr<CommHook> exchange_for(const Compression& compression, std::uint64_t seed);

}  // namespace dtrain
