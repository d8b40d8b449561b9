// What tells one data set from another: cheap enough for every start, so that a run that resumes, and workers
// that train together, know whether their data are the same.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/source.h"

namespace dtrain {

/// Of the samples of one split.
struct SplitFingerprint {
  std::int64_t size = 0;
  /// 16 hexadecimal digits; empty where a number that was looked at is not finite: such data are corrected
  /// before a run resumes, and are then others.
  std::string content;
  /// The same over more samples, where they are in memory and `content` is not of all of them; else empty.
  std::string more;

  bool operator==(const SplitFingerprint&) const = default;
  /// "160 samples (content 0123456789abcdef)"; that of more samples where there is one
  std::string to_string() const;
};

struct DataFingerprint {
  std::string fields;  ///< name, dtype, shape, number of values and columns of each
  SplitFingerprint train, test;
  std::vector<std::string> names = {};  ///< names_of_values()

  bool operator==(const DataFingerprint&) const = default;
};

/// Of the first `size` samples of `source`: a hash over all of them where they are few, else over as many as
/// make 4 MiB (16 at least), or 256 MiB too where they are in memory, evenly spread, the first and the last
/// among them. Random parts are drawn from keys of their own. The same on every machine. Throws as
/// Source::read.
SplitFingerprint fingerprint(const Source& source, std::int64_t size);
DataFingerprint fingerprint(const Source& train, const Source& test);

/// "x float32 [2] (size, rooms), label int64 [] of 3 values"
std::string describe_with_columns(std::span<const Field> fields);

/// What the values of fields are called, as classes are, in the order of the fields and their numbers: "label
/// 0 is cat", "label 1 is dog". Those of a field that are called by their numbers have no names.
std::vector<std::string> names_of_values(std::span<const Field> fields);

/// The first value that is called otherwise: "expected label 0 is cat, got label 0 is dog"; empty where all
/// agree, or where one side has no names.
std::string difference(const std::vector<std::string>& then, const std::vector<std::string>& now);

/// Whether the same names stand for other numbers.
bool are_renumbered(const std::vector<std::string>& then, const std::vector<std::string>& now);

/// Whether `now` can be what `then` was taken of: equal, where `then` has content and more of it.
bool fits(const SplitFingerprint& then, const SplitFingerprint& now);

/// What differs first, in words: "its training samples: expected 160 samples (…), got 161 samples (…)"; empty
/// where all fits.
std::string difference(const DataFingerprint& then, const DataFingerprint& now);

/// As entries of a checkpoint (TrainingState::extra), and back; nothing where a version wrote it that did not
/// note its data.
std::map<std::string, std::string> to_entries(const DataFingerprint& fingerprint);
std::optional<DataFingerprint> from_entries(const std::map<std::string, std::string>& entries);

}  // namespace dtrain
