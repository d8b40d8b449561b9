// Builds the messages of errors that are made from parts.
#include "runtime/base/error.h"

#include <system_error>

namespace dtrain {
namespace {

std::string data_message(const std::string& path, std::int64_t offset_bytes, const std::string& expected,
                         const std::string& found) {
  std::string text = path;
  if (offset_bytes >= 0) text += ": at byte " + std::to_string(offset_bytes);
  return text + ": expected " + expected + ", found " + found;
}

}  // namespace

DataError::DataError(const std::string& path, std::int64_t offset_bytes, const std::string& expected,
                     const std::string& found)
    : Error(data_message(path, offset_bytes, expected, found)), path_(path), offset_bytes_(offset_bytes) {}

SystemError::SystemError(const std::string& what, int error_number)
    : Error(what + ": " + std::generic_category().message(error_number) + " (errno " +
            std::to_string(error_number) + ")"),
      error_number_(error_number) {}

}  // namespace dtrain
