#include "training/options/weight_init.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/options.h"
#include "runtime/nn/init.h"

namespace dtrain {

WeightInit parse_weight_init(std::string_view text) {
  if (text == "xavier-uniform")
    return [](const Tensor& w, Generator& draws) { init::xavier_uniform_(w, 1, draws); };
  if (text == "xavier-normal")
    return [](const Tensor& w, Generator& draws) { init::xavier_normal_(w, 1, draws); };
  if (text == "kaiming-uniform")
    return [](const Tensor& w, Generator& draws) { init::kaiming_uniform_(w, {}, draws); };
  if (text == "kaiming-normal")
    return [](const Tensor& w, Generator& draws) { init::kaiming_normal_(w, {}, draws); };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view name = text.substr(0, colon);
  const std::optional<double> size = parse_real(text.substr(colon + 1));
  if (!size || !(*size >= 0) || !std::isfinite(*size)) return {};
  if (name == "normal")
    return [std = *size](const Tensor& w, Generator& draws) { init::normal_(w, 0, std, draws); };
  if (name == "uniform")
    return [bound = *size](const Tensor& w, Generator& draws) { init::uniform_(w, -bound, bound, draws); };
  return {};
}

int initialize_weights(Module& network, const WeightInit& init, Generator& generator) {
  std::vector<Tensor> done;
  network.apply([&](Module& module) {
    for (const auto& [name, parameter] : module.own_parameters()) {
      const bool tied =
          std::ranges::any_of(done, [&](const Tensor& other) { return other.shares_storage(parameter); });
      if (parameter.rank() < 2 || tied) continue;
      init(parameter, generator);
      done.push_back(parameter);
    }
  });
  return static_cast<int>(done.size());
}

}  // namespace dtrain
