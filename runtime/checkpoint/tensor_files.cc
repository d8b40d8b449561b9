#include "runtime/checkpoint/tensor_files.h"

#include <fmt/format.h>

#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/checkpoint/input_file.h"

namespace dtrain {
namespace {

std::span<std::byte> bytes_of(const View& view) {
  return {static_cast<std::byte*>(view.data), static_cast<std::size_t>(view.numel()) * size_of(view.dtype)};
}

/// Where some of a tensor's elements are.
struct Piece {
  std::size_t file = 0;
  std::string key;
  TensorPart part;
};

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
std::int64_t read_shared(const SafetensorsFile& file, const Piece& piece, const TensorPart& part,
                         const View& target) {
  const SafetensorsEntry& entry = *file.find(piece.key);
  if (piece.part == part) {
    file.read(entry, bytes_of(target));
    return part.count;
  }
  const auto width = static_cast<std::int64_t>(size_of(target.dtype));
  GatheredReads reads(file.file());
  std::int64_t found = 0;
  for_each_shared_run(piece.part, part, [&](const SharedRun& run) {
    reads.add(file.values_at() + entry.begin + static_cast<std::uint64_t>(run.in_a * width),
              static_cast<std::byte*>(target.data) + run.in_b * width,
              static_cast<std::size_t>(run.count * width));
    found += run.count;
    return true;
  });
  reads.flush();
  return found;
}

}  // namespace

struct TensorFiles::Impl {
  struct Held {
    std::size_t tensor = 0;
    std::vector<Piece> pieces;
  };

  std::vector<SafetensorsFile> files;
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
};

TensorFiles TensorFiles::open(const std::filesystem::path& path, Verify verify) {
  return TensorFiles(SafetensorsFile::open(path, verify));
}

TensorFiles::TensorFiles(SafetensorsFile file) : impl_(std::make_unique<Impl>()) {
  for (const SafetensorsEntry& entry : file.entries()) {
    const TensorPart part = entry.part.value_or(TensorPart::whole(entry.shape));
    impl_->add({entry.tensor, entry.dtype, part.shape}, {0, entry.name, part});
  }
  impl_->files.push_back(std::move(file));
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
  read(name, TensorPart::whole(tensor.shape), target);
}

void TensorFiles::read(const std::string& name, const TensorPart& part, const View& target) const {
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
    if (overlap(piece.part, part)) found += read_shared(impl_->files[piece.file], piece, part, target);
  }
  if (found != part.count) {
    throw DataError(impl_->files[held.pieces[0].file].path().string(), -1,
                    fmt::format("{} elements {} of tensor '{}'", part.count, part.to_string(), name),
                    fmt::format("{} of them; this is one shard of several", found));
  }
}

void TensorFiles::check_values(int share, int shares) const {
  for (std::size_t i = static_cast<std::size_t>(share); i < impl_->files.size();
       i += static_cast<std::size_t>(shares))
    impl_->files[i].check_values();
}

}  // namespace dtrain
