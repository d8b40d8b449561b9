// What the report shows of a run's samples: the first training pictures, and the confusion matrix and worst
// mistakes of an evaluation. Each is a JSON file in the run's folder, with its pictures as one data URI.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/data/source.h"
#include "runtime/device/dims.h"
#include "training/confusion.h"

namespace dtrain {

/// Pictures as the network sees them.
struct FedPictures {
  static constexpr std::int64_t kMost = 24;

  std::vector<float> values = {};  ///< [N, C, H, W]
  Dims shape = {};
  std::vector<std::int64_t> samples = {};  ///< their places in the files
  std::vector<std::string> files = {};     ///< of each (Source::file_of)
  std::vector<std::int64_t> labels = {};   ///< empty: they have none
  std::vector<std::string> classes = {};   ///< the labels' names; empty: numbers
  std::optional<PixelNumbers> numbers = {};
};

/// batch.json; empty where the values are no pictures or there is no encoder.
std::string batch_json(const FedPictures& fed);

/// When a network was evaluated.
struct EvaluatedAt {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t step = 0;
};

/// What it was evaluated on.
struct EvaluatedOn {
  std::shared_ptr<const Source> source;
  Field label;            ///< the field that is predicted
  std::size_t image = 0;  ///< the field that the report shows, if it is float32 [C, H, W]
};

/// evaluation.json. Reads the pictures of the mistakes again. Throws as Loader::next.
std::string evaluation_json(const Confusion& confusion, const EvaluatedAt& at, const EvaluatedOn& on,
                            const Deadline& deadline);

}  // namespace dtrain
