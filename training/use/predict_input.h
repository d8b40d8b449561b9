// What a network is asked about: files of samples without what is to be predicted, read as those it was
// trained on were.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "training/use/saved_run.h"

namespace dtrain {

struct PredictionInput {
  std::shared_ptr<const Source> source;
  std::vector<std::string> places;  ///< of each sample, for people; empty: its number says it
};

/// The samples of --input `files`, FILE for the field the run's network is fed, or NAME=FILE[,NAME=FILE]… for
/// several. A .npy file, or an array of a .npz file (open_npy_field()), holds [N, …the field's shape]
/// (float64 becomes float32, an image of bytes numbers from 0 to 1), a .csv file a header and a row a sample
/// (of the columns that the run learned from, by their names, wherever they stand), a file of any other name
/// is an IDX file of grey images; .csv and IDX files may be gzip, and each is for one field. Of a run that
/// was trained on pictures, FILE is a .jpg, .jpeg, .png or .webp file, a folder of them, or a pattern of
/// shards (.tar). The source has the fields given, as the run had them. Throws UsageError for a name that is
/// no field of the run, DataError for a file that does not fit its field or is damaged.
PredictionInput open_input(const std::string& files, const SavedRun& run, Log& log);

}  // namespace dtrain
