#include "models/text/likelihood.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "models/text/evaluating.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Tokens = std::vector<std::int32_t>;

/// The last tokens of a continuation that the network has room for, and how many of them are the text's.
struct Row {
  Tokens tokens;
  std::int64_t text = 0;
};

Row row_of(const Continuation& continuation, const TransformerShape& shape) {
  const auto text = static_cast<std::int64_t>(continuation.text.size());
  if (continuation.context.empty() || text < 1 || text > shape.context) {
    throw UsageError(fmt::format(
        "likelihood: expected a context, followed by a text of 1 to {} tokens, got {} and {} tokens",
        shape.context, continuation.context.size(), text));
  }
  Row row{continuation.context, text};
  row.tokens.insert(row.tokens.end(), continuation.text.begin(), continuation.text.end());
  const auto room = static_cast<std::size_t>(shape.context + 1);
  if (row.tokens.size() > room)
    row.tokens.erase(row.tokens.begin(), row.tokens.end() - static_cast<std::ptrdiff_t>(room));
  for (const std::int32_t token : row.tokens) {
    if (token < 0 || token >= shape.vocabulary)
      throw UsageError(fmt::format("likelihood: expected tokens below the vocabulary of {}, got {}",
                                   shape.vocabulary, token));
  }
  return row;
}

/// `logits` [L, vocabulary] behind each token but the last.
Likelihood likelihood(const Row& row, const Tensor& logits) {
  const auto end = static_cast<std::int64_t>(row.tokens.size()) - 1;
  const std::vector<std::int64_t> wanted(row.tokens.end() - row.text, row.tokens.end());
  const Tensor behind = logits.slice(0, end - row.text, end).contiguous();
  const Tensor target = Tensor::from_data(wanted, {row.text}, logits.shared_device());
  return {-sum(cross_entropy(behind, target, LossReduction::none).to(DType::f64)).item(),
          argmax(behind).to_vector<std::int64_t>() == wanted};
}

/// What is behind a row's end no token before it sees.
Tensor padded(std::span<const Row* const> rows, const std::shared_ptr<Device>& device) {
  std::size_t longest = 0;
  for (const Row* row : rows) longest = std::max(longest, row->tokens.size() - 1);
  Tokens all;
  for (const Row* row : rows) {
    all.insert(all.end(), row->tokens.begin(), row->tokens.end() - 1);
    all.resize(all.size() + longest - (row->tokens.size() - 1), 0);
  }
  return Tensor::from_data(all, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(longest)},
                           device);
}

}  // namespace

std::vector<Likelihood> likelihoods(Transformer& network, std::span<const Continuation> continuations,
                                    std::int64_t batch_size) {
  const NoGrad no_grad;
  const Evaluating evaluating(network);
  const auto device = network.named_parameters().front().second.shared_device();
  std::vector<Row> rows;
  for (const Continuation& each : continuations) rows.push_back(row_of(each, network.shape()));
  std::vector<const Row*> order(rows.size());
  std::ranges::transform(rows, order.begin(), [](const Row& row) { return &row; });
  std::ranges::stable_sort(order, std::greater<>(), [](const Row* row) { return row->tokens.size(); });
  std::vector<Likelihood> found(rows.size());
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(batch_size)) {
    const std::span batch =
        std::span(order).subspan(begin, std::min(order.size() - begin, static_cast<std::size_t>(batch_size)));
    const Tensor logits = network(padded(batch, device));
    for (std::size_t i = 0; i < batch.size(); ++i)
      found[static_cast<std::size_t>(batch[i] - rows.data())] =
          likelihood(*batch[i], logits.select(0, static_cast<std::int64_t>(i)));
  }
  return found;
}

}  // namespace dtrain
