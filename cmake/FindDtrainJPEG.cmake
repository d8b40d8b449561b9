# Finds libjpeg-turbo: target DtrainJPEG::JPEG, JPEG_VERSION. Another libjpeg cannot decode a part of a picture, and is not
# taken. The archive where it is there, so that programs need nothing more to run.
find_path(DTRAIN_JPEG_INCLUDE_DIR jpeglib.h)
find_path(DTRAIN_JPEG_CONFIG_DIR jconfig.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE})
find_library(DTRAIN_JPEG_FOUND_LIBRARY NAMES libjpeg.a jpeg)
mark_as_advanced(DTRAIN_JPEG_INCLUDE_DIR DTRAIN_JPEG_CONFIG_DIR DTRAIN_JPEG_FOUND_LIBRARY)

set(has_crop "")
if(DTRAIN_JPEG_INCLUDE_DIR AND DTRAIN_JPEG_CONFIG_DIR)
  file(STRINGS "${DTRAIN_JPEG_INCLUDE_DIR}/jpeglib.h" has_crop REGEX "jpeg_crop_scanline")
  file(STRINGS "${DTRAIN_JPEG_CONFIG_DIR}/jconfig.h" JPEG_VERSION REGEX "#define LIBJPEG_TURBO_VERSION ")
  string(REGEX REPLACE ".*VERSION +([0-9.]+).*" "\\1" JPEG_VERSION "${JPEG_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DtrainJPEG REQUIRED_VARS DTRAIN_JPEG_FOUND_LIBRARY DTRAIN_JPEG_INCLUDE_DIR has_crop
                                  VERSION_VAR JPEG_VERSION)
if(DtrainJPEG_FOUND AND NOT TARGET DtrainJPEG::JPEG)
  add_library(DtrainJPEG::JPEG UNKNOWN IMPORTED)
  set_target_properties(DtrainJPEG::JPEG PROPERTIES IMPORTED_LOCATION "${DTRAIN_JPEG_FOUND_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${DTRAIN_JPEG_INCLUDE_DIR};${DTRAIN_JPEG_CONFIG_DIR}")
endif()
