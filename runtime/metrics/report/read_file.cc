#include "runtime/metrics/report/read_file.h"

#include <fcntl.h>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/durable_file.h"

namespace dtrain {

std::optional<std::string> read_if_there(const std::filesystem::path& path, std::size_t most) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > most) return std::nullopt;
  const UniqueFd fd(
      static_cast<int>(check(Sys{::open(path.c_str(), O_RDONLY | O_CLOEXEC)}, "open " + path.string())));
  return read_whole(fd.get(), path);
}

}  // namespace dtrain
