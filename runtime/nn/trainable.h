// Which of a module's parameters learn: those that require a gradient. All that trains, shares or saves asks
// here, so that a frozen parameter is frozen everywhere.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/nn/module.h"

namespace dtrain {

/// Module::named_parameters() without the frozen ones.
NamedTensors trainable_parameters(const Module& module);
/// The others.
NamedTensors frozen_parameters(const Module& module);

/// The names of those that are no weights between hidden layers, which optimizers of matrices (Muon) leave to
/// another rule: of fewer than two dimensions, or of one row or column as a matrix (the first dimension is
/// the rows); of embeddings; of the last layer, in the order of construction; tables that lie beside layers
/// (positions, class tokens: what a module with children has itself and does not call a weight).
std::set<std::string> names_of_outer_parameters(const Module& module);

/// Every parameter under each of its names: tied weights have several.
NamedTensors parameters_by_all_names(const Module& module);

/// Whether `name` is one of `pattern`: `*` stands for any text, dots too, `?` for a letter, `[ab]` for one of
/// these.
bool matches(std::string_view pattern, const std::string& name);

/// The names of `parameters` (parameters_by_all_names) that `pattern` means: those that match, and the other
/// names of the same tensors. `what` ("--freeze") begins what is said of a pattern that matches none: throws
/// UsageError, which names what comes closest.
std::vector<std::string> names_that_match(std::string_view what, const std::string& pattern,
                                          const NamedTensors& parameters);

/// Freezes the parameters of which a name matches a pattern ("backbone.*"): they no longer require a
/// gradient. Tied weights have several names, of which any will do. Call it before a strategy or an optimizer
/// sees the module. Returns the names, in the module's order. Throws UsageError for a pattern that matches
/// none.
///
///     freeze(network, std::vector<std::string>{"conv1.*", "bn1.*"});
std::vector<std::string> freeze(Module& module, std::span<const std::string> patterns);

}  // namespace dtrain
