#include "runtime/checkpoint/tensor_files.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/checkpoint/input_file.h"
#include "runtime/checkpoint/shard_index.h"

namespace dtrain {
namespace {

/// Where some of a tensor's elements are.
struct Piece {
  std::size_t file = 0;
  std::string key;
  TensorShard part;
};

// More files than this are closed again after each use: a process may have 1024 open.
constexpr std::size_t kMostOpenFiles = 64;

void check_target(const SavedTensor& tensor, const View& target, std::int64_t count) {
  if (target.dtype == tensor.dtype && target.is_contiguous() && target.numel() == count &&
      (target.data != nullptr || count == 0)) {
    return;
  }
  throw UsageError(fmt::format(
      "reading '{}': expected contiguous memory for {} elements of {}, got {} of {} in a view of shape {}",
      tensor.name, count, name_of(tensor.dtype), target.numel(), name_of(target.dtype),
      target.shape.to_string()));
}

// Reads what `piece` holds of `part` and returns how many elements that were.
std::int64_t read_shared(const SafetensorsFile& file, const SafetensorsEntry& entry, const Piece& piece,
                         const TensorShard& part, const View& target) {
  const auto width = static_cast<std::int64_t>(size_of(target.dtype));
  GatheredReads reads(file.file());
  std::int64_t found = 0;
  for_each_shared_run(piece.part, part, [&](const SharedRun& run) {
    auto* to = static_cast<std::byte*>(target.data) + run.in_b * width;
    const auto size = static_cast<std::size_t>(run.count * width);
    if (run.count ==
        piece.part.count) {  // all that the file holds, in one stretch: its checksum can be compared
      file.read(entry, {to, size});
    } else {
      reads.add(file.values_at() + entry.begin + static_cast<std::uint64_t>(run.in_a * width), to, size);
    }
    found += run.count;
    return true;
  });
  reads.flush();
  return found;
}

/// A file that is opened when it is needed.
struct Slot {
  std::filesystem::path path;
  std::optional<SafetensorsSeal> seal;  ///< what it must be
  std::optional<SafetensorsFile> file;

  const SafetensorsFile& opened() {
    if (file) return *file;
    file = SafetensorsFile::open(path, Verify::required);
    if (seal && file->seal() != *seal) {
      const SafetensorsSeal found = file->seal();
      file.reset();
      throw DataError(
          path.string(), -1,
          fmt::format("{} bytes with header crc32 '{}', as state.json says", seal->bytes, seal->header_crc32),
          fmt::format("{} bytes with '{}'", found.bytes, found.header_crc32));
    }
    return *file;
  }
};

}  // namespace

struct TensorFiles::Impl {
  struct Held {
    std::size_t tensor = 0;
    std::vector<Piece> pieces;
  };

  std::vector<Slot> files;
  std::vector<SavedTensor> tensors;
  std::unordered_map<std::string, Held> held;
  std::uint64_t bytes = 0;

  void add(const SavedTensor& tensor, Piece piece) {
    const auto [at, is_new] = held.try_emplace(tensor.name, Held{tensors.size(), {}});
    if (is_new) tensors.push_back(tensor);
    bytes += static_cast<std::uint64_t>(piece.part.count) * size_of(tensor.dtype);
    at->second.pieces.push_back(std::move(piece));
  }

  const Held& of(const std::string& name) const {
    const auto found = held.find(name);
    if (found != held.end()) return found->second;
    throw UsageError("reading '" + name + "': expected one of the " + std::to_string(tensors.size()) +
                     " saved tensors, found none of that name");
  }

  // Calls `use` with the open file.
  template <class Use>
  void with_file(std::size_t i, Use use) {
    const SafetensorsFile& file = files[i].opened();
    use(file);
    if (files.size() > kMostOpenFiles) files[i].file->release();
  }

  // The entry that the index means, as the index says it is.
  static const SafetensorsEntry& entry_of(const SafetensorsFile& file, const SavedTensor& tensor,
                                          const Piece& piece) {
    const SafetensorsEntry* entry = file.find(piece.key);
    if (entry != nullptr && entry->dtype == tensor.dtype && entry->shape == piece.part.held_shape())
      return *entry;
    throw DataError(file.path().string(), -1,
                    fmt::format("'{}' of {} and shape {}, as the index says", piece.key,
                                name_of(tensor.dtype), piece.part.held_shape().to_string()),
                    entry == nullptr
                        ? "none"
                        : fmt::format("{} of shape {}", name_of(entry->dtype), entry->shape.to_string()));
  }
};

TensorFiles TensorFiles::open(const std::filesystem::path& path, Verify verify) {
  return TensorFiles(SafetensorsFile::open(path, verify));
}

TensorFiles::TensorFiles(SafetensorsFile file) : impl_(std::make_unique<Impl>()) {
  for (const SafetensorsEntry& entry : file.entries()) {
    const TensorShard part = entry.part.value_or(TensorShard::whole(entry.shape));
    impl_->add({entry.tensor, entry.dtype, part.shape}, {0, entry.name, part});
  }
  const auto path = file.path();
  impl_->files.push_back({path, std::nullopt, std::move(file)});
}

TensorFiles::TensorFiles(const std::filesystem::path& directory, std::span<const IndexedTensor> tensors,
                         const std::map<std::string, SafetensorsSeal>& seals)
    : impl_(std::make_unique<Impl>()) {
  std::unordered_map<std::string, std::size_t> number;
  for (const auto& [name, seal] : seals) {
    number.emplace(name, impl_->files.size());
    impl_->files.push_back({directory / name, seal, std::nullopt});
  }
  for (const IndexedTensor& tensor : tensors) {
    for (const IndexedPiece& piece : tensor.pieces) {
      impl_->add({tensor.name, tensor.dtype, tensor.shape}, {number.at(piece.file), piece.key, piece.part});
    }
  }
}

TensorFiles::TensorFiles(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
TensorFiles::TensorFiles(TensorFiles&&) noexcept = default;
TensorFiles& TensorFiles::operator=(TensorFiles&&) noexcept = default;
TensorFiles::~TensorFiles() = default;

const std::vector<SavedTensor>& TensorFiles::tensors() const noexcept { return impl_->tensors; }
std::uint64_t TensorFiles::bytes() const noexcept { return impl_->bytes; }

const SavedTensor* TensorFiles::find(const std::string& name) const noexcept {
  const auto found = impl_->held.find(name);
  return found == impl_->held.end() ? nullptr : &impl_->tensors[found->second.tensor];
}

void TensorFiles::read(const std::string& name, const View& target) const {
  const SavedTensor& tensor = impl_->tensors[impl_->of(name).tensor];
  if (target.shape != tensor.shape) {
    throw UsageError("reading '" + name + "': expected a view of shape " + tensor.shape.to_string() +
                     ", got " + target.shape.to_string());
  }
  read(name, TensorShard::whole(tensor.shape), target);
}

void TensorFiles::read(const std::string& name, const TensorShard& part, const View& target) const {
  const Impl::Held& held = impl_->of(name);
  const SavedTensor& tensor = impl_->tensors[held.tensor];
  part.check("reading '" + name + "'");
  if (part.shape != tensor.shape) {
    throw UsageError("reading '" + name + "': expected a part of a tensor of shape " +
                     tensor.shape.to_string() + ", got one of " + part.shape.to_string());
  }
  check_target(tensor, target, part.count);
  std::int64_t found = 0;
  for (const Piece& piece : held.pieces) {
    if (!overlap(piece.part, part)) continue;
    impl_->with_file(piece.file, [&](const SafetensorsFile& file) {
      found += read_shared(file, Impl::entry_of(file, tensor, piece), piece, part, target);
    });
  }
  if (found != part.count) {
    throw DataError(impl_->files[held.pieces[0].file].path.string(), -1,
                    fmt::format("{} elements {} of tensor '{}'", part.count, part.to_string(), name),
                    fmt::format("{} of them; this is one shard of several", found));
  }
}

void TensorFiles::check_values(int share, int shares) const {
  const auto is_mine = [&](std::size_t file) {
    return file % static_cast<std::size_t>(shares) == static_cast<std::size_t>(share);
  };
  for (std::size_t i = 0; i < impl_->files.size(); ++i) {
    if (is_mine(i)) impl_->with_file(i, [](const SafetensorsFile& file) { file.check_values(); });
  }
  for (const SavedTensor& tensor : impl_->tensors) {
    for (const Piece& piece : impl_->of(tensor.name).pieces) {
      if (is_mine(piece.file)) Impl::entry_of(*impl_->files[piece.file].file, tensor, piece);
    }
  }
}

}  // namespace dtrain
