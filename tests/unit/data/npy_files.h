// Makes .npy bytes for tests, as numpy.save does.
#pragma once

#include <string>
#include <vector>

namespace dtrain::test {

/// Magic number, version `version`.0 and length in front of `dictionary`, which may be anything.
inline std::string npy_frame(const std::string& dictionary, int version) {
  std::string bytes = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (std::size_t i = 0, length = dictionary.size(); i < (version == 1 ? 2U : 4U); ++i, length >>= 8)
    bytes += static_cast<char>(length & 255U);
  return bytes + dictionary;
}

/// A header padded to a multiple of 64 bytes.
inline std::string npy_header(const std::string& descr, const std::string& shape, int version) {
  std::string dictionary = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const std::size_t front = version == 1 ? 10 : 12;
  while ((front + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  return npy_frame(dictionary + '\n', version);
}

template <class T>
std::string npy_bytes(const std::string& descr, const std::string& shape, const std::vector<T>& values) {
  return npy_header(descr, shape, 1) +
         std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace dtrain::test
