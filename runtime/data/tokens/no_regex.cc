// Where dtrain was built without PCRE2: only the patterns that have scanners.
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/data/tokens/pre_tokenizer.h"

namespace dtrain {

std::shared_ptr<const PreTokenizer> regex_pre_tokenizer(const std::string& pattern,
                                                        SplitBehavior /*behavior*/,
                                                        PatternDialect /*dialect*/) {
  throw UsageError(
      fmt::format("pattern \"{}\": expected one of the known tokenizers' patterns, as this dtrain was built "
                  "without PCRE2; "
                  "install it (apt install libpcre2-dev) and build again",
                  pattern));
}

}  // namespace dtrain
