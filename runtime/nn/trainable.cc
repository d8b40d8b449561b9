#include "runtime/nn/trainable.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/nn/embedding.h"

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

/// See names_of_outer_parameters(). `last`: the parameters of the last module that has any.
void add_outer(const Module& module, const std::string& prefix, NamedTensors& outer, NamedTensors& last) {
  const bool is_embedding = dynamic_cast<const Embedding*>(&module) != nullptr;
  if (!module.own_parameters().empty()) last.clear();
  for (const auto& [name, tensor] : module.own_parameters()) {
    const bool is_matrix = tensor.rank() >= 2 && tensor.size(0) > 1 && tensor.numel() > tensor.size(0);
    const bool is_table = !module.children().empty() && name.find("weight") == name.npos;
    if (!is_matrix || is_embedding || is_table) outer.emplace_back(prefix + name, tensor);
    last.emplace_back(prefix + name, tensor);
  }
  for (const auto& [name, child] : module.children()) add_outer(*child, prefix + name + ".", outer, last);
}

// Among the names of parameters and of the modules that they are in.
std::string closest_to(const std::string& pattern, const NamedTensors& parameters) {
  std::string plain = pattern;
  std::erase_if(plain, [](char letter) { return letter == '*' || letter == '?'; });
  while (plain.ends_with('.')) plain.pop_back();
  std::vector<std::string_view> words;
  for (const auto& [name, tensor] : parameters) {
    words.push_back(name);
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      words.push_back(std::string_view(name).substr(0, dot));
  }
  const auto closest = closest_word(plain, words);
  return closest ? "; did you mean '" + *closest + "'?" : "";
}

[[noreturn]] void refuse(std::string_view what, const std::string& pattern, const NamedTensors& parameters) {
  constexpr std::size_t kShown = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(parameters.size(), kShown); ++i)
    names += (i == 0 ? "" : ", ") + parameters[i].first;
  if (parameters.size() > kShown) names += ", …";
  throw UsageError(std::string(what) + ": expected a pattern that matches a parameter, got '" + pattern +
                   "'; the parameters are " + names + " (conv1.* stands for all of conv1)" +
                   closest_to(pattern, parameters));
}

}  // namespace

NamedTensors trainable_parameters(const Module& module) { return parameters_that(module, true); }

NamedTensors frozen_parameters(const Module& module) { return parameters_that(module, false); }

bool matches(std::string_view pattern, const std::string& name) {
  return ::fnmatch(std::string(pattern).c_str(), name.c_str(), 0) == 0;
}

std::set<std::string> names_of_outer_parameters(const Module& module) {
  NamedTensors outer, last;
  add_outer(module, "", outer, last);
  outer.insert(outer.end(), last.begin(), last.end());
  std::set<std::string> names;
  std::set<const void*> tensors;  // tied weights have several names
  for (const auto& [name, tensor] : outer) {
    names.insert(name);
    if (const void* const leaf = tensor.autograd_state().get()) tensors.insert(leaf);
  }
  for (const auto& [name, tensor] : parameters_by_all_names(module)) {
    if (tensors.contains(tensor.autograd_state().get())) names.insert(name);
  }
  return names;
}

NamedTensors parameters_by_all_names(const Module& module) {
  NamedTensors all;
  collect(module, "", all);
  return all;
}

std::vector<std::string> names_that_match(std::string_view what, const std::string& pattern,
                                          const NamedTensors& parameters) {
  std::set<const void*> tensors;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters) {
    if (!matches(pattern, name)) continue;
    names.push_back(name);
    if (const void* const leaf = tensor.autograd_state().get()) tensors.insert(leaf);
  }
  if (names.empty()) refuse(what, pattern, parameters);
  for (const auto& [name, tensor] : parameters) {
    if (tensors.contains(tensor.autograd_state().get()) && !matches(pattern, name)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> freeze(Module& module, std::span<const std::string> patterns) {
  NamedTensors all = parameters_by_all_names(module);
  for (const std::string& pattern : patterns) names_that_match("freeze", pattern, all);
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
