// Small files of a run's folder, as they are now. Internal to runtime/metrics.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace dtrain {

/// All of the regular file `path`; nothing when there is none or when it has more than `most` bytes. Throws
/// SystemError when it cannot be read.
std::optional<std::string> read_if_there(const std::filesystem::path& path, std::size_t most);

}  // namespace dtrain
