// A network as text: what PyTorch's print(model) shows, module by module.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>

#include "runtime/nn/module.h"

namespace dtrain {

/// The module and everything below it, one a line, as PyTorch's repr(module): the name of its class, what it
/// was made with (Module::extra_repr), and its children by name, indented. Children of a ModuleList that look
/// the same are one line.
///
///     std::cout << network << '\n';
///
///     Net(
///       (conv1): Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
///       (fc): Linear(in_features=64, out_features=10, bias=True)
///     )
std::string to_string(const Module& module);

std::ostream& operator<<(std::ostream& out, const Module& module);

/// Values as extra_repr() writes them: as Python does.
namespace repr {

/// The shortest text that reads back as the same double: "0.1", "1e-05", "2.0".
std::string number(double value);
/// "True" or "False"
std::string flag(bool value);
/// "(3, 5)", or "(3,)" of one value.
std::string tuple(std::span<const std::int64_t> values);
std::string tuple(std::initializer_list<std::int64_t> values);
/// One number where all are equal, else the tuple: how torch's pooling shows its windows.
std::string number_or_tuple(std::initializer_list<std::int64_t> values);

/// What torch's convolutions say of themselves.
struct Convolution {
  std::int64_t in = 0, out = 0;
  Dims kernel, stride, padding, dilation;
  Dims output_padding = {};  ///< none where it is not transposed
  std::int64_t groups = 1;
  bool bias = true;
};
std::string convolution(const Convolution& of);

}  // namespace repr
}  // namespace dtrain
