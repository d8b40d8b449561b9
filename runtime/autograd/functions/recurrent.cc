#include "runtime/autograd/ops/recurrent.h"

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"

namespace dtrain {

LstmState lstm_cell(const Tensor& gates, const LstmState& before, const Tensor& w, const Tensor& bias) {
  const Tensors parts = chunk(gates + linear(before.h, w, bias), 4, 1);
  const Tensor in = sigmoid(parts[0]), forget = sigmoid(parts[1]), cell = tanh(parts[2]);
  const Tensor c = forget * before.c + in * cell;
  return {sigmoid(parts[3]) * tanh(c), c};
}

Tensor gru_cell(const Tensor& gates, const Tensor& h, const Tensor& w, const Tensor& bias) {
  const Tensors from_input = chunk(gates, 3, 1), from_state = chunk(linear(h, w, bias), 3, 1);
  const Tensor reset = sigmoid(from_input[0] + from_state[0]);
  const Tensor update = sigmoid(from_input[1] + from_state[1]);
  const Tensor fresh = tanh(from_input[2] + reset * from_state[2]);
  return (h - fresh) * update + fresh;
}

Tensor rnn_tanh_cell(const Tensor& gates, const Tensor& h, const Tensor& w, const Tensor& bias) {
  return tanh(gates + linear(h, w, bias));
}

Tensor rnn_relu_cell(const Tensor& gates, const Tensor& h, const Tensor& w, const Tensor& bias) {
  return relu(gates + linear(h, w, bias));
}

}  // namespace dtrain
