#include "models/text/word_head.h"

#include "parallel/functional.h"
#include "parallel/tensor/split_module.h"
#include "runtime/autograd/ops.h"

namespace dtrain {
namespace {

/// x [..., width] → [..., words], by a table that is whole: that of the words of input, or one of its own. Of
/// a split sequence each rank gets all of it first.
class WordHead final : public Module {
 public:
  WordHead(const Tensor& table, bool bias, std::optional<TensorParallelGroup> tp_group)
      : tp_group_(std::move(tp_group)), weight_(add_parameter("weight", table)) {
    if (bias) bias_ = add_parameter("bias", Tensor::zeros({table.size(0)}, table.shared_device()));
  }
  Tensor forward(const Tensor& x) override {
    const bool is_part = tp_group_ && tp_group_->sequence;
    return linear(is_part ? gather_alike(x, 1, tp_group_->group, "head") : x, weight_, bias_);
  }

 private:
  std::optional<TensorParallelGroup> tp_group_;
  Tensor weight_, bias_;
};

/// The same of split words: this rank's part of the words, tied to the table of input.
class TensorParallelTiedHead final : public SplitModule {
 public:
  TensorParallelTiedHead(const Tensor& table, bool bias, const TensorParallelGroup& tp_group)
      : SplitModule(tp_group.group), tp_group_(tp_group), weight_(add_tied_slice("weight", table, 0)) {
    const std::int64_t words = table.size(0) * tp_group.group.communicator.size();
    if (bias) bias_ = add_slice("head", "bias", Tensor::zeros({words}, table.shared_device()), 0);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor whole = tp_group_.sequence ? all_gather(x, 1, tp_group_.group, "head")
                                            : copy_to_ranks(x, tp_group_.group, "head");
    return linear(whole, weight_, bias_);
  }

 private:
  TensorParallelGroup tp_group_;
  Tensor weight_, bias_;
};

}  // namespace

std::shared_ptr<Module> make_word_head(const TransformerLayers& layers, const Module& embed, bool bias) {
  const TransformerShape& shape = layers.shape();
  const TensorParallelGroup* const tp_group = layers.tp_group();
  const bool splits = tp_group != nullptr && splits_words(shape, *tp_group);
  if (shape.tied && splits)
    return std::make_shared<TensorParallelTiedHead>(parameter_of(embed, "words.weight"), bias, *tp_group);
  if (splits || (!shape.tied && tp_group == nullptr))
    return layers.columns(shape.width, shape.vocabulary, "head", bias);
  const Tensor table = shape.tied
                           ? parameter_of(embed, "words.weight")
                           : parameter_of(*layers.whole(shape.width, shape.vocabulary, false), "weight");
  return std::make_shared<WordHead>(table, bias,
                                    tp_group == nullptr ? std::nullopt : std::optional(*tp_group));
}

}  // namespace dtrain
