// The owner's lock is taken before its file has its name, so that no folder looks abandoned while it is made.
#include "launcher/process/memory_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace dtrain::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "dtrain-memory-";
constexpr const char* kOwner = "/.owner";

// Of a machine's that were killed together nobody is left to do it.
void remove_abandoned(const std::string& memory) {
  std::error_code error;
  for (fs::directory_iterator it(memory, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string path = it->path().string();
    struct stat status {};
    if (!it->path().filename().string().starts_with(kName) || ::lstat(path.c_str(), &status) != 0 ||
        !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
      continue;
    const UniqueFd owner(::open((path + kOwner).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    std::error_code ignored;
    if (owner && ::flock(owner.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, ignored);
  }
}

}  // namespace

MemoryFolder::MemoryFolder(const std::string& memory) {
  remove_abandoned(memory);
  std::string path = memory + "/" + kName + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return;
  const std::string owner = path + kOwner;
  owner_.reset(::open((owner + "-").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (owner_ && ::flock(owner_.get(), LOCK_EX | LOCK_NB) == 0 &&
      ::rename((owner + "-").c_str(), owner.c_str()) == 0)
    path_ = path;
  std::error_code ignored;
  if (path_.empty()) fs::remove_all(path, ignored);
}

MemoryFolder::~MemoryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace dtrain::launcher
