// A folder of classes, each a folder of pictures.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/images/files/kept_index.h"
#include "runtime/data/images/files/picture_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kMostDepth = 64;  // of folders: a link to a folder above itself has no end

/// The endings that torchvision takes for pictures.
constexpr std::array<std::string_view, 9> kPictureEndings = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                             ".pgm", ".tif",  ".tiff", ".webp"};

bool is_listed(std::string name, Listed listed) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (listed == Listed::frames && name.ends_with(".npy")) return true;
  return std::ranges::any_of(kPictureEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

/// The names in one folder, in order.
struct Listing {
  std::vector<std::string> folders, files;
};

Listing list(const std::string& directory) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;  // a link that leads nowhere is a file to ImageFolder, too
    (at->is_directory(ignored) ? listing.folders : listing.files).push_back(at->path().filename().string());
  }
  if (error) throw SystemError("list the folder " + directory, error.value());
  // Names may be listed in a folder in which no file may be opened.
  if (::faccessat(AT_FDCWD, directory.c_str(), X_OK, AT_EACCESS) != 0)
    throw SystemError("open files in the folder " + directory, errno);
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.files);
  return listing;
}

/// Of each folder one file is tried: files that somebody may not read usually come together, and a call for
/// each of a million on a shared file system would take minutes.
void check_readable(const std::string& file) {
  if (::faccessat(AT_FDCWD, file.c_str(), R_OK, AT_EACCESS) != 0 && errno == EACCES)
    throw SystemError("open " + file, EACCES);
}

/// A folder with files, its path relative to the class's.
struct Found {
  std::string path;
  std::vector<std::string> files;
};

void walk(const std::string& root, const std::string& path, Listed listed, int depth,
          std::vector<Found>& found, std::vector<FileStamp>& stamps) {
  if (depth > kMostDepth) {
    throw DataError(root + path, -1, fmt::format("folders nested at most {} deep", kMostDepth),
                    "more; is there a link to a folder above it?");
  }
  stamps.push_back(stamp_of(root + path));  // before it is read: what changes meanwhile shows
  Listing listing = list(root + path);
  std::erase_if(listing.files, [&](const std::string& name) { return !is_listed(name, listed); });
  if (!listing.files.empty()) {
    check_readable(root + path + "/" + listing.files.front());
    found.push_back({path, std::move(listing.files)});
  }
  for (const std::string& folder : listing.folders)
    walk(root, path + "/" + folder, listed, depth + 1, found, stamps);
}

/// Throws SystemError naming `path`.
[[noreturn]] void fail(const char* call, const std::string& path) {
  throw SystemError(std::string(call) + " " + path, errno);
}

/// Paths in one piece of memory: there may be millions.
class PictureFolder final : public PictureFiles {
 public:
  PictureFolder(std::string directory, const IndexPlace& place, Listed listed)
      : directory_(std::move(directory)), listed_(listed) {
    std::error_code ignored;
    const fs::path whole = fs::absolute(directory_, ignored);
    const char* const kind = listed == Listed::frames ? "frames " : "folder ";
    const KeptIndex index(place.directory, kind + whole.string());
    if (const auto kept = index.find(); kept && take(*kept)) return;
    list_all();
    std::vector<FileStamp> stamps = std::move(stamps_);
    for (FileStamp& stamp : stamps) stamp.path = fs::absolute(stamp.path, ignored).string();
    index.keep(stamps, content(), place.log);
  }

  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(labels_.size()); }
  const std::vector<std::string>& classes() const noexcept override { return classes_; }
  std::int64_t label(std::int64_t index) const noexcept override {
    return labels_[static_cast<std::size_t>(index)];
  }
  std::string place(std::int64_t index) const override { return path(index); }
  EncodedPicture read(std::int64_t index, std::vector<std::uint8_t>& memory) const override {
    return read_picture_file(path(index), memory);
  }

 private:
  void list_all();
  void add_class(std::int32_t number);
  std::string content() const;
  bool take(std::string_view content);
  std::string path(std::int64_t index) const {
    const auto at = static_cast<std::size_t>(index);
    return directory_ + "/" + paths_.substr(ends_[at], ends_[at + 1] - ends_[at]);
  }

  std::string directory_;
  Listed listed_;
  std::vector<std::string> classes_;
  std::vector<std::int32_t> labels_;
  std::string paths_;  ///< relative to the folder, one behind the other
  std::vector<std::uint64_t> ends_{0};
  std::vector<FileStamp> stamps_;  ///< of the folders that were listed
};

void PictureFolder::list_all() {
  stamps_.push_back(stamp_of(directory_));
  classes_ = list(directory_).folders;
  if (classes_.empty())
    throw DataError(directory_, -1, "a folder for each class, with pictures in it", "no folder");
  for (std::size_t i = 0; i < classes_.size(); ++i) add_class(static_cast<std::int32_t>(i));
  classes_ = distinct_utf8(std::move(classes_));
}

std::string PictureFolder::content() const {
  IndexWriter writer;
  writer.add(static_cast<std::int64_t>(classes_.size()));
  for (const std::string& name : classes_) writer.add(std::string_view(name));
  writer.add(std::span(labels_));
  writer.add(std::span(ends_));
  writer.add(std::string_view(paths_));
  return writer.bytes();
}

bool PictureFolder::take(std::string_view content) {
  IndexReader reader(content);
  const std::int64_t count = reader.number();
  for (std::int64_t i = 0; i < count && classes_.size() < content.size(); ++i)
    classes_.emplace_back(reader.text());
  labels_ = reader.values<std::int32_t>();
  ends_ = reader.values<std::uint64_t>();
  paths_ = reader.text();
  return reader.finished();
}

void PictureFolder::add_class(std::int32_t number) {
  const std::string& name = classes_[static_cast<std::size_t>(number)];
  const std::string root = directory_ + "/" + name;
  std::vector<Found> found;
  walk(root, "", listed_, 0, found, stamps_);
  std::ranges::sort(found, {}, &Found::path);  // as whole texts: "a b" comes before "a/b"
  const std::size_t before = labels_.size();
  for (const Found& folder : found) {
    for (const std::string& file : folder.files) {
      paths_ += name + folder.path + "/" + file;
      ends_.push_back(paths_.size());
      labels_.push_back(number);
    }
  }
  if (labels_.size() == before) {
    throw DataError(root, -1, "at least one picture of each class (.jpg, .jpeg, .png, .webp)",
                    "none; remove the folder, or put pictures there");
  }
}

/// Pictures without classes.
class PictureList final : public PictureFiles {
 public:
  PictureList(const std::string& path, Listed listed, const std::string& mask_ending) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      paths_.push_back(path);
      return;
    }
    std::vector<Found> found;
    std::vector<FileStamp> stamps;
    walk(path, "", listed, 0, found, stamps);
    std::ranges::sort(found, {}, &Found::path);
    for (const Found& folder : found) {
      for (const std::string& file : folder.files) paths_.push_back(path + folder.path + "/" + file);
    }
    if (!mask_ending.empty()) leave_masks_out(mask_ending);
    if (paths_.empty())
      throw DataError(path, -1, "pictures (.jpg, .jpeg, .png, .webp) in the folder", "none");
  }
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(paths_.size()); }
  const std::vector<std::string>& classes() const noexcept override { return classes_; }
  std::int64_t label(std::int64_t /*index*/) const noexcept override { return 0; }
  std::string place(std::int64_t index) const override { return paths_[static_cast<std::size_t>(index)]; }
  EncodedPicture read(std::int64_t index, std::vector<std::uint8_t>& memory) const override {
    return read_picture_file(place(index), memory);
  }

 private:
  void leave_masks_out(const std::string& ending) {
    std::set<std::string> masks;
    for (const std::string& path : paths_) {
      if (std::string mask = mask_beside(path, ending); mask != path) masks.insert(std::move(mask));
    }
    std::erase_if(paths_, [&](const std::string& path) { return masks.contains(path); });
  }

  std::vector<std::string> paths_, classes_;
};

}  // namespace

EncodedPicture read_picture_file(std::string name, std::vector<std::uint8_t>& memory) {
  const UniqueFd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail("open", name);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("stat", name);
  if (!S_ISREG(status.st_mode)) throw DataError(name, -1, "a file", "something else");
  memory.resize(static_cast<std::size_t>(status.st_size));
  for (std::size_t done = 0; done < memory.size();) {
    const ssize_t count = ::read(file.get(), memory.data() + done, memory.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", name);
    if (count == 0) memory.resize(done);
    done += static_cast<std::size_t>(count);
  }
  return {memory, std::move(name), 0};
}

std::shared_ptr<const PictureFiles> open_picture_folder(const std::string& directory, const IndexPlace& index,
                                                        Listed listed) {
  return std::make_shared<const PictureFolder>(without_last_slashes(directory), index, listed);
}

std::shared_ptr<const PictureFiles> open_picture_list(const std::string& path, Listed listed,
                                                      const std::string& mask_ending) {
  return std::make_shared<const PictureList>(without_last_slashes(path), listed, mask_ending);
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string mask_beside(const std::string& picture, const std::string& ending) {
  return fs::path(picture).replace_extension().string() + "." + ending;
}

}  // namespace dtrain
