#include "models/text/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "models/text/evaluating.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Tokens = std::vector<std::int32_t>;

void check_prompts(const TransformerShape& shape, const std::vector<Tokens>& prompts) {
  for (const Tokens& prompt : prompts) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length < 1 || length >= shape.context) {
      throw UsageError(
          fmt::format("generate: expected prompts of 1 to {} tokens, for a context of {}, got {}",
                      shape.context - 1, shape.context, length));
    }
    for (const std::int32_t token : prompt) {
      if (token < 0 || token >= shape.vocabulary)
        throw UsageError(fmt::format("generate: expected tokens below the vocabulary of {}, got {}",
                                     shape.vocabulary, token));
    }
  }
}

/// Texts that grow together. Each row is as long as its text; what a shorter one has behind its end is not
/// seen by anything that counts, because a token sees those before it alone.
class Batch {
 public:
  Batch(Transformer& network, const std::vector<Tokens>& prompts, const GenerateOptions& options)
      : network_(network), texts_(prompts), cached_(options.cache) {
    std::size_t longest = 0;
    for (const Tokens& prompt : prompts) longest = std::max(longest, prompt.size());
    const auto capacity =
        std::min(network.shape().context, static_cast<std::int64_t>(longest) + options.tokens);
    if (cached_) caches_ = network.make_caches(rows(), capacity);
    device_ = network.named_parameters().front().second.shared_device();
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(texts_.size()); }
  bool is_full(std::size_t row) const {
    return static_cast<std::int64_t>(texts_[row].size()) >= network_.shape().context;
  }
  void append(std::size_t row, std::int32_t token) { texts_[row].push_back(token); }

  /// The logits behind each text's end, row by row.
  std::vector<float> next_logits() {
    const bool goes_on = cached_ && started_;
    started_ = true;
    return goes_on ? of_last_tokens() : of_whole_texts();
  }

 private:
  std::vector<float> of_whole_texts() {
    std::size_t longest = 0;
    for (const Tokens& text : texts_) longest = std::max(longest, text.size());
    Tokens padded;
    for (const Tokens& text : texts_) {
      padded.insert(padded.end(), text.begin(), text.end());
      padded.resize(padded.size() + longest - text.size(), 0);
    }
    const Tensor tokens = Tensor::from_data(padded, {rows(), static_cast<std::int64_t>(longest)}, device_);
    const Tensor logits = cached_ ? network_.forward_cached(tokens, caches_) : network_(tokens);
    std::vector<float> last;
    for (std::int64_t row = 0; row < rows(); ++row) {
      const auto end = static_cast<std::int64_t>(texts_[static_cast<std::size_t>(row)].size());
      const auto own = logits.select(0, row).select(0, end - 1).to_vector<float>();
      last.insert(last.end(), own.begin(), own.end());
    }
    return last;
  }

  std::vector<float> of_last_tokens() {
    Tokens last;
    std::vector<std::int64_t> positions;
    for (const Tokens& text : texts_) {
      last.push_back(text.back());
      positions.push_back(static_cast<std::int64_t>(text.size()) - 1);
    }
    return network_
        .forward_cached(Tensor::from_data(last, {rows(), 1}, device_), caches_,
                        Tensor::from_data(positions, {rows(), 1}, device_))
        .to_vector<float>();
  }

  Transformer& network_;
  std::vector<Tokens> texts_;
  bool cached_, started_ = false;
  std::vector<KeyValueCache> caches_;
  std::shared_ptr<Device> device_;
};

}  // namespace

// Rows that have ended continue with the rest, unseen: that does not change what is drawn for the others, as
// in transformers.
std::vector<Tokens> generate(Transformer& network, const std::vector<Tokens>& prompts,
                             const GenerateOptions& options, const TokenArrived& arrived) {
  check_prompts(network.shape(), prompts);
  const NoGrad no_grad;
  const Evaluating evaluating(network);
  Generator generator(options.seed);
  Batch batch(network, prompts, options);
  std::vector<Tokens> made(prompts.size());
  std::vector<bool> ended(prompts.size(), false);
  for (std::int64_t step = 0; step < options.tokens && !std::ranges::all_of(ended, std::identity()); ++step) {
    const Tokens next = sample_tokens(batch.next_logits(), batch.rows(), options.sampling, generator);
    for (std::size_t row = 0; row < next.size(); ++row) {
      ended[row] = ended[row] || std::ranges::find(options.stop, next[row]) != options.stop.end();
      if (!ended[row]) {
        made[row].push_back(next[row]);
        if (arrived) arrived(row, next[row]);
      }
      if (!batch.is_full(row)) batch.append(row, next[row]);
      ended[row] = ended[row] || batch.is_full(row);
    }
  }
  return made;
}

}  // namespace dtrain
