// How others publish a network's weights: the names, shapes and order of rows that their files have.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// One tensor of a network, and what it is in published files: there it may be in several parts, transposed,
/// or with its rows in another order. Both directions follow from it.
struct PublishedTensor {
  struct Part {
    std::string name;
    std::int64_t rows = 0;  ///< of our first dimension
  };

  std::string ours;
  std::vector<Part> parts;              ///< one behind the other along our first dimension
  bool transposed = false;              ///< theirs has inputs first
  std::vector<std::int64_t> rows = {};  ///< our row i is row rows[i] of the parts put together; empty: row i
};

struct PublishedFormat {
  std::string name;    ///< for messages and options: "huggingface"
  std::string config;  ///< text of config.json, which says what network it is
  /// All parameters; of tied ones the one that files have.
  std::vector<PublishedTensor> tensors;
  /// What PublishedTensor calls the tensor that a file calls `saved`: without what differs between versions
  /// of a format. Empty for what is no weight (a mask in old files).
  std::function<std::string(std::string_view saved)> canonical;
  DType dtype = DType::f32;  ///< that files are written in
  std::filesystem::path folder =
      {};  ///< where config came from, with the tokenizer beside it; empty: made here
  std::string config_file = "config.json", weights_file = "model.safetensors";
  /// What the network's tensors become before they are written: with adapters, those of a network without.
  /// Empty: nothing.
  std::function<NamedTensors(const NamedTensors& state)> merged = {};
  /// Of a network with adapters: those alone, as PEFT publishes them. Null without.
  std::shared_ptr<const PublishedFormat> adapters = nullptr;
};

}  // namespace dtrain
