// The hosts of a job as people write them: a list, Slurm's compact notation, or the file that mpirun or PBS
// has.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dtrain::launcher {

struct HostEntry {
  std::string name;            ///< as ssh is given it; may begin with "user@"
  std::optional<int> workers;  ///< as the list says; unset: as on any node
  bool operator==(const HostEntry&) const = default;
};

/// Reads a whole file; nothing when it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

/// Parses the value of --hosts: `a,b:4,gpu[01-04]`, where :N is a number of workers, or `@FILE` with a host a
/// line: `a`, `a:4`, `a slots=4` (Open MPI, with max-slots ignored), comments after #. A host that is named
/// several times is one node with that many workers, as in the files of PBS and Slurm. The order stays.
/// Throws UsageError with the place and what is expected: an empty list, an unknown word in a line, a name
/// that begins with a dash (ssh would take it for an option) or has a character that no host name has.
std::vector<HostEntry> parse_hosts(const std::string& text, const ReadFile& read_file);

}  // namespace dtrain::launcher
