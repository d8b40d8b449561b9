// Data sets in the user's own files, as --dataset names them: "csv:…", "npy:…", "idx:…", "text:…",
// "tokens:…", "folder:…" and "shards:…".
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/data/bad_samples.h"
#include "runtime/data/cache/data_cache.h"
#include "runtime/data/images/files/picture_files.h"
#include "runtime/data/images/transform.h"
#include "runtime/data/sources/csv_source.h"
#include "runtime/data/sources/source_spec.h"
#include "runtime/data/sources/split.h"

namespace dtrain {

/// Opens what stands behind "csv:":
/// FILE,target=COL[+COL]…|label=COL[+COL]…[,features=COL[+COL]…|without=COL[+COL]…]
/// [,categories=COL[+COL]…][,missing=skip|mean][,scale=standard][,classes=N][,header=none][,delimiter=C][,decimal=comma]
/// [,thousands=comma],test=FILE|split=SHARE[,split-seed=N]. Samples are x float32 [features] (all other
/// columns where none are named; a column of texts is one for each of them), y float32 [targets] and label
/// int64 [], or float32 [columns] of several. Relative files are below `folder`. What was found in a table
/// goes to `log`, if any. Throws UsageError for another syntax, DataError for what is in the files
/// (CsvTable).
Splits open_csv(std::string_view spec, const std::filesystem::path& folder, Log* log = nullptr);

/// Takes classes=, categories=, missing=, header=, delimiter=, decimal= and thousands= out of `spec`; without
/// them missing values are reported, and the delimiter is a comma. Throws UsageError for other values.
CsvReading take_csv_reading(SourceSpec& spec);

/// Opens what stands behind "npy:": FILE.npz|NAME=FILE[,NAME=FILE]…[,classes=N][,ignore=N],test=FILE.npz|
/// test.NAME=FILE…|split=SHARE[,split-seed=N]. Samples are made of the named fields (NpySource), of FILE.npz
/// alone those that its arrays are named after; FILE is one of open_npy_field().
Splits open_npy(std::string_view spec, const std::filesystem::path& folder);

/// Opens what stands behind "idx:": NAME=FILE… as open_npy(), of IDX files (open_idx_field()).
Splits open_idx(std::string_view spec, const std::filesystem::path& folder, DataCache& cache);

/// Opens what stands behind "text:":
/// FILE[,context=N][,tokenizer=FILE][,test=FILE|split=SHARE][,split-seed=N]. Samples are tokens int32
/// [context + 1], the bytes of the file (TextSource) or what a tokenizer makes of it; nine in ten are trained
/// on unless it says otherwise. The file may be gzip.
Splits open_text(std::string_view spec, const std::filesystem::path& folder);

/// Opens what stands behind "tokens:": PATTERN[,context=N][,stride=N][,vocabulary=N|tokenizer=FILE]
/// [,test=PATTERN|split=SHARE][,split-seed=N]. Samples are windows of the files that match (TokenSource).
/// Throws UsageError for another syntax, DataError for a file that is none (open_token_file()) or another
/// tokenizer's.
Splits open_tokens(std::string_view spec, const std::filesystem::path& folder);

/// How pictures are used, beside what their name says.
struct OpenPictureOptions {
  Augmentation augment = {};
  OnBadSample on_bad_sample = OnBadSample::stop;
  Log* log = nullptr;               ///< borrowed as long as the sources live; null: silent
  std::filesystem::path index_dir;  ///< where lists of files are kept; empty: nowhere
  std::size_t cache_bytes = 0;      ///< of decoded pictures with a class (PictureCache)
};

/// Opens what stands behind "folder:": DIR[,size=N][,resize=N][,test=DIR|split=SHARE][,split-seed=N]. Samples
/// are the pictures of a folder of classes (open_picture_folder), image float32 [3, size, size]
/// (PictureSource; 224 by default, from a short side of `resize`, eight sevenths of it) and label int64 [];
/// nine in ten are trained on unless it says otherwise. With frames=N[,stride=N] they are clips (ClipSource;
/// 112 by default), with mask=ENDING or masks=DIR, classes=N[,ignore=N] pictures with masks (MaskedSource).
Splits open_folder(std::string_view spec, const std::filesystem::path& folder, const OpenPictureOptions& how);

/// The pictures of "folder:DIR" or "shards:PATTERN[,label=…][,classes=N][,index=PATTERN]" as they are stored,
/// for tools. Relative names are below `folder`. Throws UsageError for anything else, and as those do.
std::shared_ptr<const PictureFiles> open_picture_files(std::string_view dataset,
                                                       const std::filesystem::path& folder);

/// Pictures or clips to be predicted.
struct PicturesToPredict {
  /// image (or clip) and label, as folder: and shards: have them; labels mean nothing.
  std::shared_ptr<const Source> source;
  std::vector<std::string> places;  ///< of each sample, for people
};

/// The picture or folder of pictures `path`, or the shards of a pattern that ends in .tar, prepared as
/// `dataset` ("folder:…" or "shards:…") prepares its own for evaluation; where that has clips, the clip or
/// folder of clips; where it has masks beside its pictures, without those in the folder. Throws UsageError
/// for another dataset, and as open_picture_list() and open_shards().
PicturesToPredict open_pictures_to_predict(const std::string& path, std::string_view dataset);

/// Opens what stands behind "shards:": PATTERN[,size=N][,resize=N][,label=cls|json.NAME][,classes=N]
/// [,test=PATTERN|split=SHARE][,split-seed=N]. The same of the pictures in tar archives
/// (open_picture_shards), whose names expand_shards() tells; with mask=ENDING, pictures with masks.
Splits open_shards(std::string_view spec, const std::filesystem::path& folder, const OpenPictureOptions& how);

}  // namespace dtrain
