# Finds libpng: target DtrainPNG::PNG, PNG_VERSION. The archive where it is there, so that programs need nothing more to
# run; it stands on zlib, which is found before.
find_path(DTRAIN_PNG_INCLUDE_DIR png.h PATH_SUFFIXES libpng16)
find_library(DTRAIN_PNG_FOUND_LIBRARY NAMES libpng.a libpng16.a png png16)
mark_as_advanced(DTRAIN_PNG_INCLUDE_DIR DTRAIN_PNG_FOUND_LIBRARY)

if(DTRAIN_PNG_INCLUDE_DIR)
  file(STRINGS "${DTRAIN_PNG_INCLUDE_DIR}/png.h" PNG_VERSION REGEX "#define PNG_LIBPNG_VER_STRING ")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" PNG_VERSION "${PNG_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DtrainPNG REQUIRED_VARS DTRAIN_PNG_FOUND_LIBRARY DTRAIN_PNG_INCLUDE_DIR
                                  VERSION_VAR PNG_VERSION)
if(DtrainPNG_FOUND AND NOT TARGET DtrainPNG::PNG)
  add_library(DtrainPNG::PNG UNKNOWN IMPORTED)
  set_target_properties(DtrainPNG::PNG PROPERTIES IMPORTED_LOCATION "${DTRAIN_PNG_FOUND_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${DTRAIN_PNG_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES ZLIB::ZLIB)
endif()
