#include "runtime/nn/trainable.h"

#include <fnmatch.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

NamedTensors parameters_that(const Module& module, bool learn) {
  NamedTensors found;
  for (NamedTensor& parameter : module.named_parameters()) {
    if (parameter.second.requires_grad() == learn) found.push_back(std::move(parameter));
  }
  return found;
}

/// Every parameter under each of its names.
void collect(const Module& module, const std::string& prefix, NamedTensors& found) {
  for (const auto& [name, tensor] : module.own_parameters()) found.emplace_back(prefix + name, tensor);
  for (const auto& [name, child] : module.children()) collect(*child, prefix + name + ".", found);
}

[[noreturn]] void refuse(const std::string& pattern, const NamedTensors& parameters) {
  constexpr std::size_t kShown = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(parameters.size(), kShown); ++i)
    names += (i == 0 ? "" : ", ") + parameters[i].first;
  if (parameters.size() > kShown) names += ", …";
  throw UsageError("freeze: expected a pattern that matches a parameter, got '" + pattern +
                   "'; the parameters are " + names + " (conv1.* stands for all of conv1)");
}

}  // namespace

NamedTensors trainable_parameters(const Module& module) { return parameters_that(module, true); }

NamedTensors frozen_parameters(const Module& module) { return parameters_that(module, false); }

bool matches(std::string_view pattern, const std::string& name) {
  return ::fnmatch(std::string(pattern).c_str(), name.c_str(), 0) == 0;
}

std::vector<std::string> freeze(Module& module, std::span<const std::string> patterns) {
  NamedTensors all;
  collect(module, "", all);
  for (const std::string& pattern : patterns) {
    const auto is_meant = [&](const NamedTensor& parameter) { return matches(pattern, parameter.first); };
    if (std::ranges::none_of(all, is_meant)) refuse(pattern, all);
  }
  std::vector<std::string> frozen;
  for (auto& [name, tensor] : all) {
    const auto is_of = [&name = name](const std::string& pattern) { return matches(pattern, name); };
    if (std::ranges::none_of(patterns, is_of)) continue;
    tensor.set_requires_grad(false);
    frozen.push_back(name);
  }
  return frozen;
}

}  // namespace dtrain
