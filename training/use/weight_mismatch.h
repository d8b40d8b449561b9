// What of a network's weights a file does not have as the network needs it, in one error.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/device/dims.h"

namespace dtrain {

/// What of a network the weights need not have.
enum class MissingWeights {
  refused,  ///< all must be there, and nothing else
  kept,  ///< what is missing or has another shape keeps its values, and what is unexpected is left: another
         ///< head
};

/// What a loading with MissingWeights::kept left as it was.
struct LeftOut {
  std::vector<std::string> kept;    ///< the network's tensors that keep their values
  std::vector<std::string> unused;  ///< the file's that the network does not have
};

/// Names are those of the file.
struct WeightMismatch {
  std::vector<std::string> other, missing, unexpected;

  /// `name` is there, but as something else.
  void add_other(const std::string& name, DType expected, const Dims& expected_shape, DType found,
                 const Dims& found_shape);
  /// Throws DataError that names `path`, the network and all of these (a few of many), if there are any.
  /// `advice` says what to do.
  void check(const std::filesystem::path& path, std::string_view network, std::size_t tensors,
             std::string_view advice) const;
};

/// Up to eight of `names`, and how many more there are.
std::string some_of(const std::vector<std::string>& names);

/// Whether values of one can be converted to the other: both floating, or the same.
bool same_kind(DType a, DType b);

}  // namespace dtrain
