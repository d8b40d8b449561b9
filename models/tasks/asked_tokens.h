// Which tokens of a sample a language model is asked for: all but the first, unless the samples say
// otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "training/task.h"

namespace dtrain {

/// The field of samples that language models learn from.
inline constexpr std::string_view kTokens = "tokens";

/// Beside `tokens`, integers [N + 1], samples may have `documents`, integers [N + 1], where in the sample the
/// document of each token begins (a document's first token is not asked for), and `asked`, integers [N + 1],
/// 0 for tokens that are not. Throws UsageError naming `who` for other shapes.
void check_asked(std::string_view who, std::span<const Field> fields);

/// Whether samples of `fields` differ in how many of their tokens are asked for.
bool asked_vary(std::span<const Field> fields);
/// Calls `visit` with each token that a batch asks for, sample by sample. Throws Error naming the sample
/// whose documents do not begin where they say.
void for_each_asked(const Batch& batch, const std::function<void(std::int64_t token)>& visit);
/// How many those are.
double count_asked(const Batch& batch);

/// The first tokens of the batch's first sample, at most `most` and of its first document.
std::vector<std::int32_t> first_tokens(const Batch& batch, std::int64_t most);

/// What the network is to say after each token but the last, i64 [B · N]; kNotAsked: nothing.
Tensor targets_of(const BatchTensors& batch);
constexpr std::int64_t kNotAsked = -100;
/// kNotAsked where targets_of(batch) may have it.
std::optional<std::int64_t> ignored_of(const BatchTensors& batch);

/// What the network is fed: tokens [B, N], and where samples have documents those, i32 [B, N].
Tensors fed_tokens(const BatchTensors& batch);

}  // namespace dtrain
