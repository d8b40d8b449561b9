// einsum, pair by pair: dimensions in the order [both and kept, one's own, summed over], one matrix product.
#include "runtime/autograd/ops/einsum.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// A tensor and the letters of its dimensions.
struct Factor {
  std::string letters;
  Tensor value;
};

[[noreturn]] void refuse(std::string_view pattern, const std::string& expected_and_got) {
  throw UsageError("einsum '" + std::string(pattern) + "': expected " + expected_and_got);
}

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

void check_letters(std::string_view pattern, const std::string& letters, const std::string& of) {
  for (const char letter : letters) {
    if ((letter < 'a' || letter > 'z') && (letter < 'A' || letter > 'Z')) {
      refuse(pattern, "letters for the dimensions of " + of + ", got '" + letters + "'");
    }
    if (std::count(letters.begin(), letters.end(), letter) > 1) {
      refuse(pattern, "each letter once in " + of + ", got '" + letters + "'");
    }
  }
}

/// The pattern without spaces, as the letters of each tensor and of the result.
std::pair<std::vector<std::string>, std::string> parsed(std::string_view pattern, std::size_t count) {
  std::string plain;
  std::copy_if(pattern.begin(), pattern.end(), std::back_inserter(plain), [](char c) { return c != ' '; });
  const std::size_t arrow = plain.find("->");
  std::vector<std::string> inputs(1);
  for (const char c : plain.substr(0, arrow)) {
    if (c == ',')
      inputs.emplace_back();
    else
      inputs.back() += c;
  }
  if (inputs.size() != count) {
    refuse(pattern,
           "letters for each of " + std::to_string(count) + " tensors, got " + std::to_string(inputs.size()));
  }
  std::string all, output;
  for (std::size_t i = 0; i < count; ++i) {
    check_letters(pattern, inputs[i], "tensor " + std::to_string(i));
    all += inputs[i];
  }
  if (arrow != std::string::npos) {
    output = plain.substr(arrow + 2);
  } else {
    std::copy_if(all.begin(), all.end(), std::back_inserter(output),
                 [&](char c) { return std::count(all.begin(), all.end(), c) == 1; });
    std::sort(output.begin(), output.end());
  }
  check_letters(pattern, output, "the result");
  for (const char letter : output) {
    if (!has(all, letter)) refuse(pattern, "a result of letters of the tensors, got '" + output + "'");
  }
  return {std::move(inputs), std::move(output)};
}

/// Throws unless each tensor has a dimension for each letter, and a letter one extent in all tensors.
void check_shapes(std::string_view pattern, const std::vector<Factor>& factors) {
  std::string letters;
  std::vector<std::int64_t> extents;
  for (const Factor& factor : factors) {
    if (static_cast<std::size_t>(factor.value.rank()) != factor.letters.size()) {
      refuse(pattern, std::to_string(factor.letters.size()) + " dimensions for '" + factor.letters +
                          "', got " + factor.value.describe());
    }
    for (std::size_t i = 0; i < factor.letters.size(); ++i) {
      const std::size_t known = letters.find(factor.letters[i]);
      const std::int64_t extent = factor.value.size(static_cast<int>(i));
      if (known == std::string::npos) {
        letters += factor.letters[i];
        extents.push_back(extent);
      } else if (extents[known] != extent) {
        refuse(pattern, std::string("one extent for '") + factor.letters[i] + "', got " +
                            std::to_string(extents[known]) + " and " + std::to_string(extent));
      }
    }
  }
}

/// `factor` summed over the letters that are not in `needed`.
Factor summed(const Factor& factor, const std::string& needed) {
  Dims gone;
  std::string left;
  for (std::size_t i = 0; i < factor.letters.size(); ++i) {
    if (has(needed, factor.letters[i]))
      left += factor.letters[i];
    else
      gone.push_back(static_cast<std::int64_t>(i));
  }
  return gone.rank() == 0 ? factor : Factor{left, sum(factor.value, gone)};
}

/// The dimensions in the order of `letters`, which are its own.
Tensor ordered(const Factor& factor, const std::string& letters) {
  if (letters == factor.letters) return factor.value;
  Dims order;
  for (const char letter : letters) order.push_back(static_cast<std::int64_t>(factor.letters.find(letter)));
  return factor.value.permute(order);
}

Dims extents_of(const Factor& factor, const std::string& letters) {
  Dims extents;
  for (const char letter : letters)
    extents.push_back(factor.value.size(static_cast<int>(factor.letters.find(letter))));
  return extents;
}

/// The product of two, of which only the letters of `needed` are left.
Factor product(const Factor& given_a, const Factor& given_b, const std::string& needed) {
  const Factor a = summed(given_a, needed + given_b.letters), b = summed(given_b, needed + given_a.letters);
  std::string both, only_a, only_b, inner;
  for (const char letter : a.letters) {
    std::string& group = !has(b.letters, letter) ? only_a : has(needed, letter) ? both : inner;
    group += letter;
  }
  for (const char letter : b.letters) {
    if (!has(a.letters, letter)) only_b += letter;
  }
  const std::int64_t batch = extents_of(a, both).product(), rows = extents_of(a, only_a).product(),
                     columns = extents_of(b, only_b).product(), depth = extents_of(a, inner).product();
  const Tensor left = ordered(a, both + only_a + inner).reshape({batch, rows, depth});
  const Tensor right = ordered(b, both + inner + only_b).reshape({batch, depth, columns});
  const Tensor result = inner.empty() ? mul(left, right) : matmul(left, right);
  Dims shape = extents_of(a, both + only_a);
  for (const std::int64_t extent : extents_of(b, only_b)) shape.push_back(extent);
  return {both + only_a + only_b, result.reshape(shape)};
}

}  // namespace

Tensor einsum(std::string_view pattern, std::span<const Tensor> tensors) {
  if (tensors.empty()) refuse(pattern, "at least one tensor, got none");
  const auto [letters, output] = parsed(pattern, tensors.size());
  std::vector<Factor> factors;
  for (std::size_t i = 0; i < tensors.size(); ++i) factors.push_back({letters[i], tensors[i]});
  check_shapes(pattern, factors);
  Factor total = factors.front();
  for (std::size_t i = 1; i < factors.size(); ++i) {
    std::string needed = output;
    for (std::size_t later = i + 1; later < factors.size(); ++later) needed += factors[later].letters;
    total = product(total, factors[i], needed);
  }
  return ordered(summed(total, output), output);
}

}  // namespace dtrain
