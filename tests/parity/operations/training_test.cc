// Losses, joining, normalisation, attention and recurrent layers beside PyTorch's (training.py).
#include <gtest/gtest.h>

#include "runtime/autograd/ops/attention.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/autograd/ops/recurrent.h"
#include "runtime/nn/recurrent.h"
#include "tests/parity/operations/parity_table.h"

namespace dtrain {
namespace {

using test::Inputs;
using test::Outputs;

constexpr LossReduction kSum = LossReduction::sum, kNone = LossReduction::none;

Tensor like(const Inputs& in, std::initializer_list<float> values) {
  return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, in[0].shared_device());
}

/// 0, 1 and two elements of the input.
Tensor with_ends(const Inputs& in) { return in[0] * like(in, {0, 0, 1, 1}) + like(in, {0, 1, 0, 0}); }

test::Family losses() {
  return {
      {"binary_cross_entropy", [](const Inputs& in) { return binary_cross_entropy(in[0], in[1].detach()); }},
      {"binary_cross_entropy sum",
       [](const Inputs& in) {
         return binary_cross_entropy(in[0], like(in, {0, 1, 0, 1, 1, 0, 0.5F}), kSum);
       }},
      {"binary_cross_entropy at the ends",
       [](const Inputs& in) {
         return binary_cross_entropy(with_ends(in), like(in, {0, 1, 1, 0}), kNone);
       }},
      {"binary_cross_entropy_with_logits",
       [](const Inputs& in) { return binary_cross_entropy_with_logits(in[0], in[1]); }},
      {"binary_cross_entropy_with_logits sum",
       [](const Inputs& in) { return binary_cross_entropy_with_logits(in[0], in[1], kSum); }},
      {"binary_cross_entropy_with_logits none",
       [](const Inputs& in) {
         return binary_cross_entropy_with_logits(in[0], Tensor::ones_like(in[0]), kNone);
       }},
      {"l1_loss", [](const Inputs& in) { return l1_loss(in[0], in[1]); }},
      {"l1_loss sum", [](const Inputs& in) { return l1_loss(in[0], in[1], kSum); }},
      {"l1_loss none", [](const Inputs& in) { return l1_loss(in[0], in[1], kNone); }},
      {"smooth_l1_loss", [](const Inputs& in) { return smooth_l1_loss(in[0], in[1]); }},
      {"smooth_l1_loss beta 0.3 sum",
       [](const Inputs& in) { return smooth_l1_loss(in[0], in[1], kSum, 0.3); }},
      {"smooth_l1_loss beta 0 none", [](const Inputs& in) { return smooth_l1_loss(in[0], in[1], kNone, 0); }},
  };
}

/// The squares of all parts.
Outputs squares(const Tensors& parts) {
  if (parts.size() == 2) return {square(parts[0]), square(parts[1])};
  return {square(parts[0]), square(parts[1]), square(parts[2])};
}

test::Family parts() {
  return {
      {"cat", [](const Inputs& in) { return cat(in, 1); }},
      {"stack", [](const Inputs& in) { return stack(in, -1); }},
      {"split",
       [](const Inputs& in) {
         return squares(split(in[0], std::vector<std::int64_t>{1, 3, 1}, 1));
       }},
      {"chunk", [](const Inputs& in) { return squares(chunk(in[0], 3)); }},
      {"unbind", [](const Inputs& in) { return squares(unbind(in[0], 1)); }},
      {"layer_norm", [](const Inputs& in) { return layer_norm(in[0], {5}, in[1], in[2]); }},
      {"layer_norm two dimensions",
       [](const Inputs& in) {
         return layer_norm(in[0], {3, 4}, {}, {}, 0.1);
       }},
      {"rms_norm", [](const Inputs& in) { return rms_norm(in[0], {5}, in[1], 1e-6); }},
      {"attention", [](const Inputs& in) { return scaled_dot_product_attention(in[0], in[1], in[2]); }},
      {"attention mask",
       [](const Inputs& in) { return scaled_dot_product_attention(in[0], in[1], in[2], in[3]); }},
      {"attention causal",
       [](const Inputs& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2], {}, {.causal = true, .scale = 0.7});
       }},
      {"embedding", [](const Inputs& in) { return embedding(in[1], in[0]); }},
      {"embedding padding", [](const Inputs& in) { return embedding(in[1], in[0], 4); }},
  };
}

/// A layer with the weights of torch.manual_seed(7).
template <class Layer, class... Options>
auto layer(Options... options) {
  return [=](const Inputs& in) -> Outputs {
    Generator generator(7);
    const Tensors out = Layer(3, 4, generator, in[0].shared_device(), options...)(in);
    if (out.size() == 2) return {out[0], out[1]};
    return {out[0], out[1], out[2]};
  };
}

test::Family recurrent() {
  const auto simple = [](auto cell) {
    return [cell](const Inputs& in) { return cell(linear(in[0], in[2], in[4]), in[1], in[3], in[5]); };
  };
  return {
      {"lstm_cell",
       [](const Inputs& in) -> Outputs {
         const LstmState after = lstm_cell(linear(in[0], in[3], in[5]), {in[1], in[2]}, in[4], in[6]);
         return {after.h, after.c};
       }},
      {"gru_cell", simple(gru_cell)},
      {"rnn_tanh_cell", simple(rnn_tanh_cell)},
      {"rnn_relu_cell", simple(rnn_relu_cell)},
      {"lstm", layer<LSTM>()},
      {"lstm states", layer<LSTM>()},
      {"lstm 2 layers bidirectional", layer<LSTM>(RecurrentOptions{.layers = 2, .bidirectional = true})},
      {"gru batch first", layer<GRU>(RecurrentOptions{.layers = 2, .batch_first = true})},
      {"gru bidirectional no bias", layer<GRU>(RecurrentOptions{.bias = false, .bidirectional = true})},
      {"rnn", layer<RNN>()},
      {"rnn relu one sequence", layer<RNN>(RecurrentOptions{}, RnnFunction::relu)},
  };
}

TEST(OperationParity, Training) {
  test::Family all = losses();
  all.merge(parts());
  all.merge(recurrent());
  test::expect_parity("training", all);
}

}  // namespace
}  // namespace dtrain
