// The file: a line that names the format, the CRC-32 of what follows, then the subject, the stamps, the
// content.
#include "runtime/data/images/files/kept_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/data/cache/content_hash.h"

namespace dtrain {
namespace {

constexpr std::string_view kMagic = "dtrain index of pictures 2\n";
constexpr std::int64_t kTooYoungNs = 2'000'000'000;

std::int64_t crc_of(std::string_view bytes) {
  return static_cast<std::int64_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::int64_t ns_of(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::optional<FileStamp> try_stamp(const std::string& path) noexcept {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileStamp{path, S_ISDIR(status.st_mode) ? 0 : static_cast<std::int64_t>(status.st_size),
                   ns_of(status.st_mtim), ns_of(status.st_ctim)};
}

}  // namespace

FileStamp stamp_of(const std::string& path) {
  auto stamp = try_stamp(path);
  if (!stamp) throw SystemError("stat " + path, errno);
  return *std::move(stamp);
}

void IndexWriter::add(std::int64_t number) {
  bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void IndexWriter::add(std::string_view text) {
  add(static_cast<std::int64_t>(text.size()));
  bytes_ += text;
}

std::int64_t IndexReader::number() {
  std::int64_t value = 0;
  if (bytes_.size() < sizeof value) {
    good_ = false;
    return 0;
  }
  std::memcpy(&value, bytes_.data(), sizeof value);
  bytes_.remove_prefix(sizeof value);
  return value;
}

std::string_view IndexReader::text() {
  const std::int64_t size = number();
  if (size < 0 || static_cast<std::uint64_t>(size) > bytes_.size()) {
    good_ = false;
    return {};
  }
  const std::string_view result = bytes_.substr(0, static_cast<std::size_t>(size));
  bytes_.remove_prefix(result.size());
  return result;
}

KeptIndex::KeptIndex(const std::filesystem::path& directory, const std::string& subject) : subject_(subject) {
  if (directory.empty()) return;
  ContentHash hash;
  hash.add(std::as_bytes(std::span(subject)));
  file_ = directory / ("pictures-" + hash.text() + ".index");
}

std::optional<std::string> KeptIndex::find() const try {
  if (file_.empty()) return std::nullopt;
  const UniqueFd fd(::open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  const std::string whole = read_whole(fd.get(), file_);
  if (!whole.starts_with(kMagic)) return std::nullopt;
  IndexReader reader(std::string_view(whole).substr(kMagic.size()));
  const std::int64_t crc = reader.number();
  if (crc != crc_of(std::string_view(whole).substr(std::min(whole.size(), kMagic.size() + sizeof crc))))
    return std::nullopt;
  if (reader.text() != subject_) return std::nullopt;
  const std::int64_t stamps = reader.number();
  for (std::int64_t i = 0; i < stamps; ++i) {
    FileStamp stamp{std::string(reader.text()), reader.number(), reader.number(), reader.number()};
    if (try_stamp(stamp.path) != stamp) return std::nullopt;
  }
  std::string content(reader.text());
  if (!reader.finished()) return std::nullopt;
  return content;
} catch (const std::exception&) {
  return std::nullopt;
}

void KeptIndex::keep(std::span<const FileStamp> stamps, std::string_view content, Log* log) const {
  if (file_.empty()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  if (std::ranges::any_of(stamps, [&](const FileStamp& s) { return s.mtime_ns > now_ns - kTooYoungNs; }))
    return;
  IndexWriter writer;
  writer.add(std::string_view(subject_));
  writer.add(static_cast<std::int64_t>(stamps.size()));
  for (const FileStamp& stamp : stamps) {
    writer.add(std::string_view(stamp.path));
    writer.add(stamp.bytes);
    writer.add(stamp.mtime_ns);
    writer.add(stamp.ctime_ns);
  }
  writer.add(content);
  IndexWriter crc;
  crc.add(crc_of(writer.bytes()));
  try {
    make_directories(file_.parent_path());
    replace_file(file_, std::string(kMagic) + crc.bytes() + writer.bytes());
  } catch (const Error& error) {
    if (log != nullptr)
      log->write(LogLevel::warning, fmt::format("the index of {} is not kept: {}", subject_, error.what()));
  }
}

}  // namespace dtrain
