#include "runtime/data/images/files/picture_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::size_t bytes_of(PictureSize size) {
  return 3 * static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) +
         PictureCache::kEntryBytes;
}

Region whole(PictureSize size) { return {0, 0, size.width, size.height}; }

/// Hands out parts of pixels that are there.
class KeptPicture final : public PictureDecoder {
 public:
  explicit KeptPicture(std::shared_ptr<const Picture> picture)
      : PictureDecoder(picture->size()), picture_(std::move(picture)) {}

 private:
  PictureView decode_region(const Region& region, Picture& /*memory*/) override {
    return picture_->view().part(region);
  }

  std::shared_ptr<const Picture> picture_;
};

/// All of `decoder`'s pixels, in memory of exactly their size; null where some are damaged.
std::shared_ptr<const Picture> decoded(PictureDecoder& decoder) {
  thread_local Picture memory;
  try {
    const PictureView pixels = decoder.decode(whole(decoder.size()), memory);
    auto picture = std::make_shared<Picture>();
    picture->resize(decoder.size());
    for (int y = 0; y < pixels.height; ++y) std::copy_n(pixels.row(y), picture->row_bytes(), picture->row(y));
    return picture;
  } catch (const DataError&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<PictureDecoder> PictureCache::open(
    const void* files, std::int64_t index, const std::function<std::unique_ptr<PictureDecoder>()>& open) {
  const Key key{files, index};
  if (auto picture = find(key)) return std::make_unique<KeptPicture>(std::move(picture));
  auto decoder = open();
  const PictureSize size = decoder->size();
  if (!take_room(size)) return decoder;
  auto picture = decoded(*decoder);
  decoder.reset();
  if (picture == nullptr) {
    give_back(size);
    return open();  // a decoder decodes once
  }
  return std::make_unique<KeptPicture>(keep(key, std::move(picture)));
}

std::shared_ptr<const Picture> PictureCache::keep(const Key& key, std::shared_ptr<const Picture> picture) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = kept_.try_emplace(key, picture);
  if (is_new) return picture;
  bytes_ -= bytes_of(picture->size());  // another thread was faster
  return at->second;
}

std::shared_ptr<const Picture> PictureCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  if (found == kept_.end()) return nullptr;
  ++hits_;
  return found->second;
}

bool PictureCache::take_room(PictureSize size) {
  std::string full;
  {
    const std::lock_guard lock(mutex_);
    if (bytes_of(size) <= most_bytes_ - bytes_) {
      bytes_ += bytes_of(size);
      return true;
    }
    if (said_full_ || log_ == nullptr) return false;
    said_full_ = true;
    full =
        fmt::format("image cache: full, with {} images in {:.1f} MiB; the others are decoded in each epoch",
                    kept_.size(), static_cast<double>(bytes_) / (1 << 20));
  }
  log_->write(LogLevel::info, full);
  return false;
}

void PictureCache::give_back(PictureSize size) {
  const std::lock_guard lock(mutex_);
  bytes_ -= bytes_of(size);
}

std::size_t PictureCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t PictureCache::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

std::int64_t PictureCache::hits() const {
  const std::lock_guard lock(mutex_);
  return hits_;
}

}  // namespace dtrain
