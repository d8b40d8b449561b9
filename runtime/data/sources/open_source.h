// Data sets by name: what `--dataset` and `--data-dir` mean.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/data/source.h"

namespace dtrain {

enum class Split { train, test };

struct OpenSourceOptions {
  std::string data_dir;            ///< folder of the files; empty: where the dataset's package puts them
  std::string cache_dir = "auto";  ///< "auto": default_data_cache_directory(); "off": none; else a folder
  Log* log = nullptr;              ///< borrowed during the call; null: silent
};

/// Opens and validates one split; after it returns, no step can fail for what is in the files. With the cache
/// warm this takes about a millisecond; else the files are inflated first. Throws UsageError for an unknown
/// name (listing the known ones), DataError for a missing or wrong file, naming its path, the package and
/// --data-dir.
std::shared_ptr<const Source> open_source(std::string_view name, Split split,
                                          const OpenSourceOptions& options = {});

/// Names that open_source knows, in order.
std::vector<std::string> source_names();

}  // namespace dtrain
