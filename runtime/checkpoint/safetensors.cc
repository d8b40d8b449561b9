// The files themselves: written in one pass after the checksums, read through a private mapping.
#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/fd.h"
#include "runtime/checkpoint/checksum.h"
#include "runtime/checkpoint/safetensors_header.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const View& view) {
  return {static_cast<const std::byte*>(view.data),
          static_cast<std::size_t>(view.numel()) * size_of(view.dtype)};
}

struct Mapping {
  void* data = nullptr;
  std::size_t size = 0;
  bool operator==(const Mapping&) const = default;
};

struct MappingTraits {
  using Handle = Mapping;
  static Handle invalid() noexcept { return {}; }
  static void close(Handle mapping) noexcept { ::munmap(mapping.data, mapping.size); }
};

// Maps a regular file that holds at least a length prefix.
Unique<MappingTraits> map_file(const fs::path& path) {
  // Non-blocking, or opening a FIFO that somebody put there would wait for ever.
  const UniqueFd fd(static_cast<int>(
      check(Sys{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)}, "open " + path.string())));
  struct stat status {};
  check(Sys{::fstat(fd.get(), &status)}, "fstat " + path.string());
  if (!S_ISREG(status.st_mode)) throw DataError(path.string(), -1, "a regular file", "something else");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < kSafetensorsPrefixBytes) {
    throw DataError(path.string(), 0, "a header length of 8 bytes", fmt::format("a file of {} bytes", size));
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) throw SystemError("mmap " + path.string(), errno);
  return Unique<MappingTraits>({data, size});
}

std::uint64_t header_end(const Mapping& file, const fs::path& path) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data, sizeof length);
  if (length > kMaxSafetensorsHeaderBytes || length > file.size - kSafetensorsPrefixBytes) {
    throw DataError(
        path.string(), 0,
        fmt::format("a header length of at most {}",
                    std::min<std::uint64_t>(kMaxSafetensorsHeaderBytes, file.size - kSafetensorsPrefixBytes)),
        std::to_string(length));
  }
  return kSafetensorsPrefixBytes + length;
}

}  // namespace

struct SafetensorsFile::Impl {
  fs::path path;
  Unique<MappingTraits> mapping;
  std::vector<NamedView> tensors;
  std::unordered_map<std::string, std::size_t> index;
  SafetensorsMetadata metadata;
  SafetensorsSeal seal;
  std::vector<std::unique_ptr<std::byte[]>> copies;  // of tensors that lie unaligned in a foreign file

  void add(const SafetensorsEntry& entry, std::uint64_t values_at) {
    const std::uint64_t offset = values_at + entry.begin;
    auto* data = static_cast<std::byte*>(mapping.get().data) + offset;
    View view{data, entry.dtype, entry.shape, contiguous_strides(entry.shape)};
    const std::string actual = entry.crc32.empty() ? "" : hex32(crc32(bytes_of(view)));
    if (actual != entry.crc32) {
      throw DataError(
          path.string(), static_cast<std::int64_t>(offset),
          fmt::format("crc32 {} of tensor '{}' ({} bytes)", entry.crc32, entry.name, entry.end - entry.begin),
          actual);
    }
    if (offset % size_of(entry.dtype) != 0) {
      copies.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes_of(view).size()));
      std::memcpy(copies.back().get(), data, bytes_of(view).size());
      view.data = copies.back().get();
    }
    index.emplace(entry.name, tensors.size());
    tensors.push_back({entry.name, view});
  }
};

std::uint64_t safetensors_bytes(std::span<const NamedView> tensors, const SafetensorsMetadata& metadata) {
  std::vector<std::size_t> order;
  const auto entries = lay_out_tensors(tensors, order);
  return format_safetensors_header(entries, metadata).size() + (entries.empty() ? 0 : entries.back().end);
}

SafetensorsSeal write_safetensors(const fs::path& path, std::span<const NamedView> tensors,
                                  const SafetensorsMetadata& metadata) {
  std::vector<std::size_t> order;
  auto entries = lay_out_tensors(tensors, order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    entries[i].crc32 = hex32(crc32(bytes_of(tensors[order[i]].view)));
  }
  const std::string head = format_safetensors_header(entries, metadata);
  const UniqueFd fd(static_cast<int>(check(
      Sys{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)}, "create " + path.string())));
  write_all(fd.get(), head, path);
  for (const std::size_t i : order) write_all(fd.get(), bytes_of(tensors[i].view), path);
  sync_file(fd.get(), path);
  return {head.size() + (entries.empty() ? 0 : entries.back().end), header_checksum(head)};
}

SafetensorsFile SafetensorsFile::open(const fs::path& path, Verify verify) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->mapping = map_file(path);
  const Mapping file = impl->mapping.get();
  const std::uint64_t values_at = header_end(file, path);
  const std::string_view head(static_cast<const char*>(file.data), values_at);
  SafetensorsHeader header = parse_safetensors_header(head, file.size - values_at, path, verify);
  for (const auto& entry : header.entries) impl->add(entry, values_at);
  impl->metadata = std::move(header.metadata);
  impl->seal = {file.size, std::move(header.crc32)};
  return SafetensorsFile(std::move(impl));
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const fs::path& SafetensorsFile::path() const noexcept { return impl_->path; }
const SafetensorsSeal& SafetensorsFile::seal() const noexcept { return impl_->seal; }
const std::vector<NamedView>& SafetensorsFile::tensors() const noexcept { return impl_->tensors; }
const SafetensorsMetadata& SafetensorsFile::metadata() const noexcept { return impl_->metadata; }

const NamedView* SafetensorsFile::find(const std::string& name) const noexcept {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

}  // namespace dtrain
