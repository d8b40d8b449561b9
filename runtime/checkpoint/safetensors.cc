// The files themselves: written in one pass after the checksums, read by position. Not through a mapping:
// there a bad sector is a SIGBUS, and not an error with a name.
#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <algorithm>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/checksum.h"
#include "runtime/checkpoint/input_file.h"
#include "runtime/checkpoint/safetensors_header.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const View& view) {
  return {static_cast<const std::byte*>(view.data),
          static_cast<std::size_t>(view.numel()) * size_of(view.dtype)};
}

constexpr std::size_t kReadAtOnce = 1 << 20;

/// What else a file that begins with these bytes is, and what to do; empty: nothing known.
std::string_view other_format(std::uint64_t first_bytes) {
  constexpr std::uint64_t kZip = 0x04034b50, kPickle = 0x80;  // "PK\3\4"; the opcode PROTO
  if ((first_bytes & 0xffffffffU) == kZip)
    return "a zip file, as torch.save writes; write safetensors.torch.save_file(torch.load(...), ...) "
           "instead";
  if ((first_bytes & 0xffU) == kPickle && (first_bytes >> 8 & 0xffU) <= 5)
    return "a Python pickle; write safetensors.torch.save_file(torch.load(...), ...) instead";
  return {};
}

std::uint64_t header_end(const InputFile& file) {
  if (file.size() < kSafetensorsPrefixBytes) {
    throw DataError(file.path().string(), 0, "a header length of 8 bytes",
                    fmt::format("a file of {} bytes", file.size()));
  }
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const std::uint64_t most = std::min(kMaxSafetensorsHeaderBytes, file.size() - kSafetensorsPrefixBytes);
  if (length > most) {
    if (const std::string_view other = other_format(length); !other.empty())
      throw DataError(file.path().string(), 0, "a .safetensors file", std::string(other));
    throw DataError(file.path().string(), 0, fmt::format("a header length of at most {}", most),
                    std::to_string(length));
  }
  return kSafetensorsPrefixBytes + length;
}

}  // namespace

struct SafetensorsFile::Impl {
  InputFile file;
  std::uint64_t values_at = 0;
  SafetensorsHeader header;
  std::unordered_map<std::string, std::size_t> index;
  SafetensorsSeal seal;

  void check_sum(const SafetensorsEntry& entry, std::uint32_t sum) const {
    if (entry.crc32.empty() || hex32(sum) == entry.crc32) return;
    throw DataError(
        file.path().string(), static_cast<std::int64_t>(values_at + entry.begin),
        fmt::format("crc32 {} of tensor '{}' ({} bytes)", entry.crc32, entry.name, entry.end - entry.begin),
        hex32(sum));
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
  auto impl = std::make_unique<Impl>(Impl{InputFile(path), 0, {}, {}, {}});
  impl->values_at = header_end(impl->file);
  std::string head(impl->values_at, '\0');
  impl->file.read(0, std::as_writable_bytes(std::span(head)));
  impl->header = parse_safetensors_header(head, impl->file.size() - impl->values_at, path, verify);
  const auto& entries = impl->header.entries;
  for (std::size_t i = 0; i < entries.size(); ++i) impl->index.emplace(entries[i].name, i);
  impl->seal = {impl->file.size(), impl->header.crc32};
  return SafetensorsFile(std::move(impl));
}

void SafetensorsFile::check_values() const {
  std::vector<std::byte> buffer(kReadAtOnce);
  for (const auto& entry : entries()) {
    std::uint32_t sum = 0;
    for (std::uint64_t at = entry.begin; at < entry.end;) {
      const std::size_t size = std::min<std::uint64_t>(buffer.size(), entry.end - at);
      impl_->file.read(impl_->values_at + at, std::span(buffer).first(size));
      sum = crc32(std::span(buffer).first(size), sum);
      at += size;
    }
    impl_->check_sum(entry, sum);
  }
}

// In pieces, so that the checksum finds them in the cache.
void SafetensorsFile::read(const SafetensorsEntry& entry, std::span<std::byte> out) const {
  std::uint32_t sum = 0;
  for (std::uint64_t at = 0; at < out.size();) {
    const auto piece = out.subspan(at, std::min(kReadAtOnce, out.size() - at));
    impl_->file.read(impl_->values_at + entry.begin + at, piece);
    if (!entry.crc32.empty()) sum = crc32(piece, sum);
    at += piece.size();
  }
  impl_->check_sum(entry, sum);
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const fs::path& SafetensorsFile::path() const noexcept { return impl_->file.path(); }
const SafetensorsSeal& SafetensorsFile::seal() const noexcept { return impl_->seal; }
const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const noexcept {
  return impl_->header.entries;
}
const SafetensorsMetadata& SafetensorsFile::metadata() const noexcept { return impl_->header.metadata; }
std::uint64_t SafetensorsFile::values_at() const noexcept { return impl_->values_at; }
const InputFile& SafetensorsFile::file() const noexcept { return impl_->file; }
void SafetensorsFile::release() noexcept { impl_->file.release(); }

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const noexcept {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &entries()[found->second];
}

}  // namespace dtrain
