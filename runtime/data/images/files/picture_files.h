// Where labelled pictures are stored: what folders and tar shards have in common.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/data/images/decode.h"

namespace dtrain {

/// Pictures by index, each with the number of its class. Immutable, shared by any number of threads.
class PictureFiles {
 public:
  virtual ~PictureFiles() = default;

  virtual std::int64_t size() const noexcept = 0;
  /// The classes' names, in the order of their numbers, UTF-8; if they have no names, the numbers.
  virtual const std::vector<std::string>& classes() const noexcept = 0;
  virtual std::int64_t label(std::int64_t index) const noexcept = 0;
  /// Where picture `index` is, for people: its file, or its shard and its name in there, "s.tar:cats/3.jpg",
  /// which is read from the shard; "s.tar:1024", the offset, of a sparse file. Throws as read().
  virtual std::string place(std::int64_t index) const = 0;
  /// Reads picture `index` into `memory`, which the result refers to. Throws SystemError for a file that
  /// cannot be read, DataError for one that is no longer what it was.
  virtual EncodedPicture read(std::int64_t index, std::vector<std::uint8_t>& memory) const = 0;
};

/// Where lists of files are kept for the next start (KeptIndex).
struct IndexPlace {
  std::filesystem::path directory;  ///< empty: nowhere
  Log* log = nullptr;               ///< borrowed during the call; null: silent
};

/// Which files of a folder are listed, by their names' endings.
enum class Listed {
  pictures,  ///< those that ImageFolder takes
  frames,    ///< and .npy, what clips are made of (clip_files.h)
};

/// The pictures of `directory` as torchvision.datasets.ImageFolder lists them: its folders are the classes,
/// in the order of their names' characters (distinct_utf8() names them); in each the files below it, at any
/// depth, links followed, whose names end as pictures' do, by folder and name. The list is kept, and used as
/// long as no folder has changed. Throws DataError where there is no class or one without a picture,
/// SystemError for what cannot be listed.
std::shared_ptr<const PictureFiles> open_picture_folder(const std::string& directory,
                                                        const IndexPlace& index = {},
                                                        Listed listed = Listed::pictures);

/// Pictures of no class: the file `path`, or all below the folder of that name whose names end as pictures'
/// do, by folder and name. With `mask_ending`, "seg.png", those are left out that are the mask of another
/// one, "a.seg.png" of "a.jpg". Throws DataError where there is none, SystemError for what cannot be listed.
std::shared_ptr<const PictureFiles> open_picture_list(const std::string& path,
                                                      Listed listed = Listed::pictures,
                                                      const std::string& mask_ending = {});

/// `path` without slashes at its end.
std::string without_last_slashes(std::string path);

/// The mask beside `picture`: "d/a.seg.png" for "d/a.jpg".
std::string mask_beside(const std::string& picture, const std::string& ending);

/// Reads the file `path` as PictureFiles::read().
EncodedPicture read_picture_file(std::string path, std::vector<std::uint8_t>& memory);

/// What is read of the samples in tar shards.
struct ShardFields {
  std::string label = "cls";  ///< "cls": a whole number in the member KEY.cls; "json.NAME": that of KEY.json
  std::int64_t classes = 0;   ///< labels are below; 0: as many as the largest label says
  std::string mask = {};      ///< ending of the masks, "seg.png", in place of labels (open_masked_shards())
  /// Of each shard, as wds2idx writes them: only what they list is read. Empty: each archive is walked.
  std::vector<std::string> indices = {};
  bool unlabelled = false;  ///< no label is read, and label() is 0
};

/// The pictures of tar archives as webdataset groups them: members of the same name up to the first dot
/// behind the last slash, one after the other, are a sample; of each the member that ends in .jpg, .jpeg,
/// .png or .webp and its label are used. A member __classes__, a list of texts, names the classes. Each
/// archive is walked once, its list kept and used as long as none has changed. Sparse files have their holes.
/// Throws DataError naming shard and offset for a sample without picture or label, one with two
/// members of the same ending, a label that is none or not below `classes`, and for what TarReader refuses;
/// UsageError for other fields.
std::shared_ptr<const PictureFiles> open_picture_shards(const std::vector<std::string>& shards,
                                                        const ShardFields& fields,
                                                        const IndexPlace& index = {});

/// The files that `pattern` stands for, in order: {0000..1281} is each number, {a,b} each text, and where
/// there is * or ? or [ what exists. Throws UsageError for a brace that is not closed or too many files.
std::vector<std::string> expand_shards(const std::string& pattern);

}  // namespace dtrain
