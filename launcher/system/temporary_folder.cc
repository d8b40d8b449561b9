// Tries the places in turn; the note is about the first.
#include "launcher/system/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace dtrain::launcher {

TemporaryFolder make_temporary_folder(const Environment& environment, const std::string& name) {
  const std::string wanted = variable_or(environment, "TMPDIR", "/tmp");
  TemporaryFolder made;
  for (const std::string& place :
       {wanted, std::string("/tmp"), std::string("/var/tmp"), std::string("/dev/shm")}) {
    std::string path = place + "/" + name + "-XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) {
      made.path = path;
      if (!made.note.empty()) made.note += "; using " + path;
      return made;
    }
    if (made.note.empty())
      made.note = "no folder can be made in " + wanted + " (TMPDIR): " + std::strerror(errno);
  }
  return made;
}

}  // namespace dtrain::launcher
