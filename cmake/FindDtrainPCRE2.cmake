# Finds PCRE2 for 8-bit characters: target PCRE2::8BIT, PCRE2_VERSION. The archive where it is there, so that programs need
# nothing more to run; PCRE2's own CMake package is not in every distribution's.
find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_8_LIBRARY NAMES libpcre2-8.a pcre2-8)
mark_as_advanced(PCRE2_INCLUDE_DIR PCRE2_8_LIBRARY)

if(PCRE2_INCLUDE_DIR)
  file(STRINGS "${PCRE2_INCLUDE_DIR}/pcre2.h" pcre2_version REGEX "#define PCRE2_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR *([0-9]+).*MINOR *([0-9]+).*" "\\1.\\2" PCRE2_VERSION "${pcre2_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DtrainPCRE2 REQUIRED_VARS PCRE2_8_LIBRARY PCRE2_INCLUDE_DIR VERSION_VAR PCRE2_VERSION)
if(DtrainPCRE2_FOUND AND NOT TARGET PCRE2::8BIT)
  add_library(PCRE2::8BIT UNKNOWN IMPORTED)
  set_target_properties(PCRE2::8BIT PROPERTIES IMPORTED_LOCATION "${PCRE2_8_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${PCRE2_INCLUDE_DIR}")
endif()
