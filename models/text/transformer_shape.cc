#include "models/text/transformer_shape.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {

std::string_view name_of(TransformerFamily family) noexcept {
  switch (family) {
    case TransformerFamily::gpt2:
      return "gpt2";
    case TransformerFamily::llama:
      return "llama";
    case TransformerFamily::bert:
      return "bert";
    case TransformerFamily::own:
      break;
  }
  return "transformer";
}

bool splits_words(const TransformerShape& shape, const TensorParallelGroup& tp_group) {
  return shape.vocabulary % tp_group.group.communicator.size() == 0;
}

const TransformerShape& checked(const TransformerShape& shape, const TensorParallelGroup* tp_group) {
  const std::string_view name = name_of(shape.family);
  if (shape.heads < 1 || shape.layers < 1 || shape.width < 1 ||
      (shape.head_width == 0 && shape.width % shape.heads != 0)) {
    throw UsageError(
        fmt::format("{}: expected at least one layer and a width that is a multiple of its heads, got {} "
                    "layers, a width of {} "
                    "and {} heads",
                    name, shape.layers, shape.width, shape.heads));
  }
  const HeadShape heads = shape.head_shape();
  if (heads.heads % heads.kv_heads != 0) {
    throw UsageError(fmt::format("{}: expected heads that are a multiple of the keys' heads, got {} and {}",
                                 name, heads.heads, heads.kv_heads));
  }
  if (!(shape.dropout >= 0 && shape.dropout < 1)) {
    throw UsageError(
        fmt::format("{}: expected a dropout of at least 0 and below 1, got {}", name, shape.dropout));
  }
  if (shape.lora && shape.lora->has("gate") && shape.feed_forward != FeedForward::swiglu)
    throw UsageError(fmt::format("{}: expected adapters on existing layers, got one on gate", name));
  if (tp_group == nullptr) return shape;
  const int ranks = tp_group->group.communicator.size();
  if (heads.kv_heads % ranks != 0 || shape.inner_width() % ranks != 0) {
    throw UsageError(
        fmt::format("{}: expected heads of keys and an inner width that are multiples of the {} workers, got "
                    "{} heads of keys and "
                    "an inner width of {}",
                    name, ranks, heads.kv_heads, shape.inner_width()));
  }
  if (tp_group->sequence && shape.context % ranks != 0) {
    throw UsageError(fmt::format("{}: expected a context that is a multiple of the {} workers, got {}", name,
                                 ranks, shape.context));
  }
  return shape;
}

}  // namespace dtrain
