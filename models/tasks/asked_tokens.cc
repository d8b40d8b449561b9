#include "models/tasks/asked_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::string_view kDocuments = "documents", kAsked = "asked";

Tensor without_first(const Tensor& x) { return x.slice(1, 1, x.size(1)); }
Tensor without_last(const Tensor& x) { return x.slice(1, 0, x.size(1) - 1); }

/// Element `at` of dense integers.
std::int64_t integer_at(const View& view, std::int64_t at) {
  if (view.dtype == DType::u8) return view.as<const std::uint8_t>()[at];
  return view.dtype == DType::i32 ? view.as<const std::int32_t>()[at] : view.as<const std::int64_t>()[at];
}

/// Numbers that are no beginnings would be places before the first, or outside the sample.
void check_documents(const Batch& batch, const View& documents) {
  const std::int64_t length = documents.shape[1];
  for (std::int64_t i = 0; i < batch.size() * length; ++i) {
    const std::int64_t document = integer_at(documents, i), place = i % length;
    if (document == place || (place > 0 && document == integer_at(documents, i - 1))) continue;
    throw Error(fmt::format(
        "sample {}: expected documents to say for each token where in the sample its document begins, so {} "
        "at token {}, got {}",
        batch.indices[static_cast<std::size_t>(i / length)],
        place == 0 ? "0" : fmt::format("{} or {}", integer_at(documents, i - 1), place), place, document));
  }
}

const View* view_of(const Batch& batch, std::string_view field) {
  return find_field(batch.fields(), field) == nullptr ? nullptr : &batch[field];
}

}  // namespace

void check_asked(std::string_view who, std::span<const Field> fields) {
  const Field* const tokens = find_field(fields, kTokens);
  for (const std::string_view name : {kDocuments, kAsked}) {
    const Field* const field = find_field(fields, name);
    if (field == nullptr) continue;
    const bool integers =
        field->dtype == DType::u8 || field->dtype == DType::i32 || field->dtype == DType::i64;
    if (integers && tokens != nullptr && field->shape == tokens->shape) continue;
    throw UsageError(fmt::format("{}: expected {} to be integers of the shape of tokens, got {}", who, name,
                                 describe(fields)));
  }
}

bool asked_vary(std::span<const Field> fields) {
  return find_field(fields, kDocuments) != nullptr || find_field(fields, kAsked) != nullptr;
}

void for_each_asked(const Batch& batch, const std::function<void(std::int64_t token)>& visit) {
  const View& tokens = batch[kTokens];
  const View *const documents = view_of(batch, kDocuments), *const asked = view_of(batch, kAsked);
  const std::int64_t length = tokens.shape[1];
  if (documents != nullptr) check_documents(batch, *documents);
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    for (std::int64_t at = row * length + 1; at < (row + 1) * length; ++at) {
      const bool begins =
          documents != nullptr && integer_at(*documents, at) != integer_at(*documents, at - 1);
      if (!begins && (asked == nullptr || integer_at(*asked, at) != 0)) visit(integer_at(tokens, at));
    }
  }
}

std::vector<std::int32_t> first_tokens(const Batch& batch, std::int64_t most) {
  const View& tokens = batch[kTokens];
  const View* const documents = view_of(batch, kDocuments);
  std::vector<std::int32_t> first;
  for (std::int64_t at = 0; at < std::min(most, tokens.shape[1]); ++at) {
    if (documents != nullptr && integer_at(*documents, at) != integer_at(*documents, 0)) break;
    first.push_back(static_cast<std::int32_t>(integer_at(tokens, at)));
  }
  return first;
}

double count_asked(const Batch& batch) {
  std::int64_t count = 0;
  for_each_asked(batch, [&](std::int64_t) { ++count; });
  return static_cast<double>(count);
}

Tensor targets_of(const BatchTensors& batch) {
  Tensor target = without_first(batch[kTokens]).to(DType::i64);
  const auto number = [&](std::int64_t value) {
    return Tensor::from_data({value}, {1}, target.shared_device());
  };
  if (batch.contains(kDocuments)) {
    const Tensor documents = batch[kDocuments].to(DType::i64);
    target = where(equal(without_first(documents), without_last(documents)), target, number(kNotAsked));
  }
  if (batch.contains(kAsked)) {
    const Tensor asked = without_first(batch[kAsked]).to(DType::i64);
    target = where(equal(asked, number(0)), number(kNotAsked), target);
  }
  return target.reshape({-1});
}

std::optional<std::int64_t> ignored_of(const BatchTensors& batch) {
  if (batch.contains(kDocuments) || batch.contains(kAsked)) return kNotAsked;
  return std::nullopt;
}

Tensors fed_tokens(const BatchTensors& batch) {
  Tensors fed{without_last(batch[kTokens]).contiguous()};
  if (batch.contains(kDocuments)) fed.push_back(without_last(batch[kDocuments]).to(DType::i32).contiguous());
  return fed;
}

}  // namespace dtrain
