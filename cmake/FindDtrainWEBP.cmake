# Finds libwebp: target DtrainWEBP::WEBP, WEBP_VERSION (of the decoder's interface). The archive where it is there, so that
# programs need nothing more to run.
find_path(DTRAIN_WEBP_INCLUDE_DIR webp/decode.h)
find_library(DTRAIN_WEBP_FOUND_LIBRARY NAMES libwebp.a webp)
mark_as_advanced(DTRAIN_WEBP_INCLUDE_DIR DTRAIN_WEBP_FOUND_LIBRARY)

if(DTRAIN_WEBP_INCLUDE_DIR)
  file(STRINGS "${DTRAIN_WEBP_INCLUDE_DIR}/webp/decode.h" WEBP_VERSION REGEX "#define WEBP_DECODER_ABI_VERSION ")
  string(REGEX REPLACE ".*(0x[0-9a-f]+).*" "\\1" WEBP_VERSION "${WEBP_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DtrainWEBP REQUIRED_VARS DTRAIN_WEBP_FOUND_LIBRARY DTRAIN_WEBP_INCLUDE_DIR)
if(DtrainWEBP_FOUND AND NOT TARGET DtrainWEBP::WEBP)
  add_library(DtrainWEBP::WEBP UNKNOWN IMPORTED)
  set_target_properties(DtrainWEBP::WEBP PROPERTIES IMPORTED_LOCATION "${DTRAIN_WEBP_FOUND_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${DTRAIN_WEBP_INCLUDE_DIR}")
endif()
