// Pictures of a folder and the masks beside them, or in a folder of their own.
#include <fmt/format.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/data/images/files/masked_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class MaskedFolder final : public MaskedPictures {
 public:
  MaskedFolder(std::string directory, const MaskNames& names)
      : directory_(without_last_slashes(std::move(directory))),
        names_{names.ending, without_last_slashes(names.directory)},
        all_(open_picture_list(directory_)) {
    if (!fs::is_directory(directory_))
      throw DataError(directory_, -1, "a folder of pictures with masks", "a file");
    for (std::int64_t i = 0; i < all_->size(); ++i) {
      const std::string picture = all_->place(i);
      if (names_.directory.empty() && picture.ends_with("." + names_.ending)) continue;  // a mask itself
      std::error_code ignored;
      if (const std::string mask = mask_of(picture); !fs::exists(mask, ignored))
        throw DataError(picture, -1, "the mask " + mask + " of this picture", "no such file");
      indices_.push_back(i);
    }
    if (indices_.empty()) {
      throw DataError(directory_, -1,
                      fmt::format("pictures in addition to masks (files that end in .{})", names_.ending),
                      "none");
    }
  }

  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(indices_.size()); }
  const std::vector<std::string>& classes() const noexcept override { return all_->classes(); }
  std::int64_t label(std::int64_t /*index*/) const noexcept override { return 0; }
  std::string place(std::int64_t index) const override { return all_->place(at(index)); }
  EncodedPicture read(std::int64_t index, std::vector<std::uint8_t>& memory) const override {
    return all_->read(at(index), memory);
  }
  EncodedPicture read_mask(std::int64_t index, std::vector<std::uint8_t>& memory) const override {
    return read_picture_file(mask_of(place(index)), memory);
  }

 private:
  std::int64_t at(std::int64_t index) const noexcept { return indices_[static_cast<std::size_t>(index)]; }
  std::string mask_of(const std::string& picture) const {
    std::string beside = mask_beside(picture, names_.ending);
    if (names_.directory.empty()) return beside;
    return names_.directory + beside.substr(directory_.size());
  }

  std::string directory_;
  MaskNames names_;
  std::shared_ptr<const PictureFiles> all_;
  std::vector<std::int64_t> indices_;  ///< of the pictures in all_
};

}  // namespace

std::shared_ptr<const MaskedPictures> open_masked_folder(const std::string& directory,
                                                         const MaskNames& names) {
  return std::make_shared<const MaskedFolder>(directory, names);
}

}  // namespace dtrain
