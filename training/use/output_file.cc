#include "training/use/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_existing(const fs::path& path) {
  throw UsageError(
      fmt::format("{}: expected a new name, got an existing file; --overwrite replaces it", path.string()));
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

}  // namespace

void check_free(const fs::path& path, bool overwrite) {
  if (fs::is_directory(path))
    throw UsageError(fmt::format("{}: expected the name of a file, got a folder", path.string()));
  if (!overwrite && fs::exists(path)) refuse_existing(path);
}

fs::path draft_of(const fs::path& path) { return path.string() + ".draft-" + unique_suffix(); }

void put_in_place(const fs::path& draft, const fs::path& path, bool overwrite) {
  if (overwrite) {
    check(Sys{::rename(draft.c_str(), path.c_str())}, "rename to " + path.string());
  } else {
    if (::link(draft.c_str(), path.c_str()) != 0) {
      if (errno == EEXIST) refuse_existing(path);
      throw SystemError("link " + path.string(), errno);
    }
    ::unlink(draft.c_str());
  }
  sync_directory(folder_of(path));
}

OutputFile::OutputFile(fs::path path, bool overwrite)
    : path_(std::move(path)), draft_(draft_of(path_)), overwrite_(overwrite) {
  check_free(path_, overwrite_);
  const long fd = check(Sys{::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)},
                        "create " + path_.string());
  fd_ = UniqueFd(static_cast<int>(fd));
}

OutputFile::~OutputFile() {
  if (fd_) ::unlink(draft_.c_str());
}

void OutputFile::write(std::string_view bytes) { write_all(fd_.get(), bytes, path_); }

void OutputFile::commit() {
  sync_file(fd_.get(), path_);
  put_in_place(draft_, path_, overwrite_);
  fd_ = UniqueFd();
}

}  // namespace dtrain
