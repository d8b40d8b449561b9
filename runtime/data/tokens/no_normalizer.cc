// Where dtrain was built without utf8proc.
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/data/tokens/normalizer.h"

namespace dtrain {

std::string normalize(std::string_view text, Normalization normalization) {
  check_can_normalize(normalization);
  return std::string(text);
}

void check_can_normalize(Normalization normalization) {
  throw UsageError(
      fmt::format("normalizer {}: expected a tokenizer without one, as this dtrain was built without "
                  "utf8proc; install it "
                  "(apt install libutf8proc-dev) and build again",
                  name_of(normalization)));
}

}  // namespace dtrain
