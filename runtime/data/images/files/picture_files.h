// Where labelled pictures are stored: what folders and tar shards have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/images/decode.h"

namespace dtrain {

/// Pictures by index, each with the number of its class. Immutable, shared by any number of threads.
class PictureFiles {
 public:
  virtual ~PictureFiles() = default;

  virtual std::int64_t size() const noexcept = 0;
  /// The classes' names, in the order of their numbers; where nobody named them, the numbers.
  virtual const std::vector<std::string>& classes() const noexcept = 0;
  virtual std::int64_t label(std::int64_t index) const noexcept = 0;
  /// Reads picture `index` into `memory`, which the result refers to. Throws SystemError for a file that
  /// cannot be read, DataError for one that is no longer what it was.
  virtual EncodedPicture read(std::int64_t index, std::vector<std::uint8_t>& memory) const = 0;
};

/// The pictures of `directory` as torchvision.datasets.ImageFolder lists them: its folders are the classes,
/// in the order of their names' characters; in each the files below it, at any depth, links followed, whose
/// names end as pictures' do, by folder and name. Throws DataError where there is no class or one without a
/// picture, SystemError for what cannot be listed.
std::shared_ptr<const PictureFiles> open_picture_folder(const std::string& directory);

}  // namespace dtrain
