// The fuzzers' functions for files of a run and of data sets; as targets.h, beside it since they need the
// runtime.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// A .safetensors file opens or throws DataError; what opens has entries that lie one behind the other in the
/// file and are as long as their shapes say, and their values are read whole or refused.
void safetensors(std::string_view input);

/// A state.json: DataError, or a state whose text reads back as the same state. And the same bytes sealed
/// with the checksum they would need, so that what is behind it is reached.
void state(std::string_view input);

/// An index of shards: DataError, or tensors whose text reads back as the same tensors.
void shard_index(std::string_view input);

/// An IDX file, plain or gzip: DataError, or as many bytes as the dimensions say.
void idx(std::string_view input);

/// Metrics and summary of a run, as its report reads them: whatever they hold, curves of finite numbers, and
/// a DataError for a table that is no JSON.
void report(std::string_view input);

}  // namespace dtrain::fuzz
