// Data sets by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/data/bad_samples.h"
#include "runtime/data/images/transform.h"
#include "runtime/data/sources/split.h"

namespace dtrain {

struct OpenSourceOptions {
  std::string data_dir;  ///< folder of the files; empty: where the data set's package puts them, or the
                         ///< current folder for the user's own files
  std::string cache_dir = "auto";  ///< "auto": default_data_cache_directory(); "off": none; else a folder
  Log* log = nullptr;              ///< borrowed, of pictures as long as the sources live; null: silent
  Augmentation augment = {};       ///< of pictures in files, in training
  OnBadSample on_bad_sample = OnBadSample::stop;  ///< of pictures in files
  std::size_t picture_cache_bytes = 0;  ///< what decoded pictures of files may take in memory (PictureCache)
};

/// Opens and validates one split; after it returns, no step can fail for what is in the files. With the cache
/// warm this takes about a millisecond; else the files are inflated first. Throws UsageError for an unknown
/// name (listing the known ones), DataError for a missing or wrong file, naming its path, the package and
/// data_dir.
std::shared_ptr<const Source> open_source(std::string_view name, Split split,
                                          const OpenSourceOptions& options = {});

/// Both splits, as open_source opens them. A file they share is read once.
Splits open_splits(std::string_view name, const OpenSourceOptions& options = {});

/// Names that open_source knows, in order; beside them are synthetic:…, csv:…, npy:…, idx:…, text:…,
/// tokens:…, folder:… and shards:….
std::vector<std::string> source_names();

}  // namespace dtrain
