// Where pictures with masks are stored: folders and tar shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/images/files/picture_files.h"

namespace dtrain {

/// Pictures, each with a mask, the class of each of its pixels. They have no label.
class MaskedPictures : public PictureFiles {
 public:
  /// Reads the mask of picture `index`, as read().
  virtual EncodedPicture read_mask(std::int64_t index, std::vector<std::uint8_t>& memory) const = 0;
};

/// Where the masks of a folder's pictures are.
struct MaskNames {
  std::string ending = "png";  ///< of a mask: that of "a.jpg" is "a.png", or "a.seg.png" for "seg.png"
  std::string directory = {};  ///< they are below, at the same places as the pictures; empty: beside them
};

/// All pictures below `directory` (open_picture_list()), but for those that are masks. Throws DataError for a
/// picture without a mask, or where there is no picture.
std::shared_ptr<const MaskedPictures> open_masked_folder(const std::string& directory,
                                                         const MaskNames& names);

/// The pictures of tar archives (open_picture_shards()), of whose samples the member that ends in
/// `fields.mask` is the mask. Throws as that does, and DataError for a sample without a mask.
std::shared_ptr<const MaskedPictures> open_masked_shards(const std::vector<std::string>& shards,
                                                         const ShardFields& fields,
                                                         const IndexPlace& index = {});

}  // namespace dtrain
