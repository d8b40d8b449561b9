// The fuzzers' functions for data files; as targets.h, beside it since they need the runtime.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// A CSV file, read a few bytes at a time and all at once: the same records or the same refusal, places that
/// point into the file, and records that come back when they are written with quotes. As a table: rows of
/// finite numbers, or DataError.
void csv(std::string_view input);

/// The front of a .npy file parses or throws DataError; what parses fits the file's front, has a size that
/// adds up, and one header alone says it.
void npy(std::string_view input);

/// A .npz file: its directory and each member's content are read or refused with a place in the file, no more
/// memory is taken than deflate can make of the input, and contents are as long as the directory says.
void npz(std::string_view input);

}  // namespace dtrain::fuzz
