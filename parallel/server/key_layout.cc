#include "parallel/server/key_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace dtrain::server {
namespace {

std::int64_t bytes_of(const ParameterKey& key, const NamedTensors& parameters) {
  return key.count * static_cast<std::int64_t>(size_of(parameters[key.parameter].second.dtype()));
}

std::vector<ParameterKey> cut(const NamedTensors& parameters, bool several) {
  std::vector<ParameterKey> keys;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    const std::int64_t count = tensor.numel();
    const std::int64_t most = kMostKeyBytes / static_cast<std::int64_t>(size_of(tensor.dtype()));
    if (!several || count <= most || !tensor.is_contiguous()) {
      keys.push_back({name, i, 0, count, true, 0});
      continue;
    }
    for (std::int64_t begin = 0; begin < count; begin += most) {
      const std::int64_t end = std::min(count, begin + most);
      keys.push_back({fmt::format("{}[{}:{}]", name, begin, end), i, begin, end - begin, false, 0});
    }
  }
  return keys;
}

/// What follows "<name>." in `text`; empty where `text` is not of `name`.
std::string quantity(const std::string& text, const std::string& name) {
  return text.size() > name.size() + 1 && text.starts_with(name) && text[name.size()] == '.'
             ? text.substr(name.size() + 1)
             : "";
}

/// By name, so that state finds its parameter or key: the longest that fits.
template <class NameOf>
std::optional<std::size_t> owner_of(const std::string& text, std::size_t count, NameOf name_of) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = name_of(i);
    if (!quantity(text, name).empty() && (!best || name.size() > name_of(*best).size())) best = i;
  }
  return best;
}

}  // namespace

Tensor ParameterKey::part_of(const Tensor& tensor) const {
  if (whole) return tensor;
  const Tensor part = tensor.detach().reshape({-1}).slice(0, begin, begin + count);
  return tensor.rank() > 1 ? part.unsqueeze(0) : part;
}

std::vector<ParameterKey> lay_out_keys(const NamedTensors& parameters, int servers) {
  std::vector<ParameterKey> keys = cut(parameters, servers > 1);
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bytes_of(keys[a], parameters) > bytes_of(keys[b], parameters);
  });
  std::vector<std::int64_t> held(static_cast<std::size_t>(servers));
  for (const std::size_t i : order) {
    const auto least = std::min_element(held.begin(), held.end());
    keys[i].server = static_cast<int>(least - held.begin());
    *least += bytes_of(keys[i], parameters);
  }
  return keys;
}

NamedTensors state_of_parameters(const std::vector<ParameterKey>& keys, const NamedTensors& parameters,
                                 const std::vector<NamedTensors>& by_server) {
  std::map<std::string, Tensor> found;
  std::vector<std::vector<std::string>> names(parameters.size() + 1);  // last: of no parameter
  const auto keep = [&](std::size_t of, const std::string& name, const Tensor& value) {
    if (found.emplace(name, value).second) names[of].push_back(name);
  };
  for (const NamedTensors& state : by_server) {
    for (const auto& [text, value] : state) {
      const auto owner =
          owner_of(text, keys.size(), [&](std::size_t i) -> const std::string& { return keys[i].name; });
      if (!owner) {
        keep(parameters.size(), text, value);
        continue;
      }
      const ParameterKey& key = keys[*owner];
      const auto& [name, parameter] = parameters[key.parameter];
      const std::string full = name + "." + quantity(text, key.name);
      if (key.whole || value.numel() != key.count) {
        keep(key.parameter, full, value);
        continue;
      }
      if (!found.contains(full))
        keep(key.parameter, full, Tensor::zeros(parameter.shape(), value.shared_device(), value.dtype()));
      key.part_of(found.at(full)).copy_from(value);
    }
  }
  NamedTensors whole;
  for (const auto& list : names) {
    for (const std::string& name : list) whole.emplace_back(name, found.at(name));
  }
  return whole;
}

std::vector<NamedTensors> state_by_server(const std::vector<ParameterKey>& keys,
                                          const NamedTensors& parameters, const NamedTensors& state,
                                          int servers) {
  std::vector<NamedTensors> by_server(static_cast<std::size_t>(servers));
  for (const auto& [text, value] : state) {
    const auto owner = owner_of(text, parameters.size(),
                                [&](std::size_t i) -> const std::string& { return parameters[i].first; });
    if (!owner) {
      for (NamedTensors& one : by_server) one.emplace_back(text, value);
      continue;
    }
    const auto& [name, parameter] = parameters[*owner];
    for (const ParameterKey& key : keys) {
      if (key.parameter != *owner) continue;
      const bool cut = !key.whole && value.numel() == parameter.numel();
      by_server[static_cast<std::size_t>(key.server)].emplace_back(
          key.name + "." + quantity(text, name), cut ? key.part_of(value.contiguous()) : value);
    }
  }
  return by_server;
}

}  // namespace dtrain::server
