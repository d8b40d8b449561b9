// Pictures and the archives they come in.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

void picture(std::string_view input);  ///< decode.h
void tar(std::string_view input);      ///< tar.h
/// wds_index.h: what an index says of an archive is never believed of another.
void wds_index(std::string_view input);

}  // namespace dtrain::fuzz
