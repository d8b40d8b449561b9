// A network of split layers that tests train: a table of words, blocks of a column and a row layer with a
// sum around each, one norm in front of all of them, and a classifier of words.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/tensor/layers.h"
#include "runtime/base/random.h"
#include "runtime/nn/norms.h"

namespace dtrain::test {

struct SplitShape {
  std::int64_t width = 16, hidden = 24, words = 40;
  int blocks = 2;
};

/// With `sequence` the activations between blocks are cut along it.
class Split final : public Module {
 public:
  Split(const std::shared_ptr<Device>& device, const RankGroup& group, bool sequence, SplitShape shape = {})
      : group_(group), sequence_(sequence) {
    Generator generator(5);
    const std::optional<int> dim = sequence ? std::optional(1) : std::nullopt;
    words_ = add_module("words", std::make_shared<VocabParallelEmbedding>(shape.words, shape.width, generator,
                                                                          device, group, "words"));
    const Dims normed = {shape.width};
    if (sequence) {
      norm_ = add_module("norm", std::make_shared<SequenceParallelNorm>(normed, device, group, "norm"));
    } else {
      norm_ = add_module("norm", std::make_shared<LayerNorm>(normed, device));
    }
    for (int i = 0; i < shape.blocks; ++i) {
      const std::string block = "block" + std::to_string(i);
      up_.push_back(add_module(block + "_up", std::make_shared<ColumnParallelLinear>(
                                                  shape.width, shape.hidden, generator, device, group,
                                                  block + " up", ColumnOptions{.sequence_dim = dim})));
      down_.push_back(add_module(block + "_down", std::make_shared<RowParallelLinear>(
                                                      shape.hidden, shape.width, generator, device, group,
                                                      block + " down", RowOptions{.sequence_dim = dim})));
    }
    out_ = add_module(
        "out", std::make_shared<ColumnParallelLinear>(shape.width, shape.words, generator, device, group,
                                                      "out", ColumnOptions{.sequence_dim = dim}));
  }
  Tensor forward(const Tensor& index) override {
    Tensor h = (*words_)(index);
    if (sequence_) h = own_part(h, 1, group_, "cut");
    for (std::size_t i = 0; i < up_.size(); ++i) h = add(h, (*down_[i])(gelu((*up_[i])((*norm_)(h)))));
    return (*out_)(h);
  }
  Tensor loss(const Tensor& index, const Tensor& target) { return loss_of((*this)(index), target, group_); }
  /// Of the logits that it gives.
  static Tensor loss_of(const Tensor& logits, const Tensor& target, const RankGroup& group) {
    return vocab_parallel_cross_entropy(logits.reshape({-1, logits.size(-1)}), target.reshape({-1}), group,
                                        "loss");
  }

 private:
  RankGroup group_;
  bool sequence_;
  std::shared_ptr<VocabParallelEmbedding> words_;
  std::shared_ptr<Module> norm_;
  std::vector<std::shared_ptr<ColumnParallelLinear>> up_;
  std::vector<std::shared_ptr<RowParallelLinear>> down_;
  std::shared_ptr<ColumnParallelLinear> out_;
};

/// Some of `count` words, [3, 8].
inline Tensor words(std::uint64_t seed, std::int64_t count, const std::shared_ptr<Device>& device) {
  constexpr std::int64_t kBatch = 3, kSequence = 8;
  Generator generator(seed);
  std::vector<std::int64_t> index(static_cast<std::size_t>(kBatch * kSequence));
  std::vector<double> drawn(index.size());
  generator.uniform(drawn, 0, static_cast<double>(count));
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int64_t>(drawn[i]) % count;
  return Tensor::from_data(index, {kBatch, kSequence}, device);
}

}  // namespace dtrain::test
