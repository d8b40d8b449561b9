// Indices of tar shards as DALI's wds2idx writes them: a line a sample, its members' endings, offsets, sizes
// and names.
#pragma once

#include <functional>
#include <string>

#include "runtime/data/formats/tar.h"

namespace dtrain {

/// Calls `visit` for each member that the index at `path`, of version 1.1 or 1.2, lists of `archive`, in its
/// order. Throws DataError naming index and line for one that is malformed, or says of a member what the
/// archive at `shard` does not.
void for_each_indexed(TarReader& archive, const std::string& shard, const std::string& path,
                      const std::function<void(const TarMember&)>& visit);

/// Writes the index of the archive `shard`, of version 1.2, to `path`, atomically; returns its samples.
/// Throws DataError for what TarReader refuses, and for what such an index cannot hold: sparse files, names
/// with blanks or what is no ASCII.
std::int64_t write_wds_index(const std::string& shard, const std::string& path);

/// "b/c.d/e.seg.PNG" is sample "b/c.d/e", ending "seg.png". False where webdataset passes the member over.
bool split_member_name(const std::string& name, std::string& key, std::string& ending);

}  // namespace dtrain
