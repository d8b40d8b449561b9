// Pictures and the archives they come in.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

void picture(std::string_view input);  ///< decode.h
void tar(std::string_view input);      ///< tar.h

}  // namespace dtrain::fuzz
