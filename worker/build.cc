#include "worker/build.h"

#include <algorithm>

namespace dtrain {

std::string build_version() { return DTRAIN_VERSION; }

std::vector<BuildFeature> build_features() {
  return {{"oneDNN", DTRAIN_HAVE_ONEDNN != 0, "fast CPU convolution and matmul", DTRAIN_ONEDNN_VERSION},
          {"Gloo", DTRAIN_HAVE_GLOO != 0, "CPU collectives without MPI", DTRAIN_GLOO_VERSION},
          {"MPI", DTRAIN_HAVE_MPI != 0, "CPU collectives under mpirun, as a module", DTRAIN_MPI_VERSION},
          {"CUDA", DTRAIN_HAVE_CUDA != 0, "training on NVIDIA GPUs, as a module", DTRAIN_CUDA_VERSION},
          {"cuDNN", DTRAIN_HAVE_CUDNN != 0, "fast convolution on GPUs", DTRAIN_CUDNN_VERSION},
          {"NCCL", DTRAIN_HAVE_NCCL != 0, "collectives between GPUs", DTRAIN_NCCL_VERSION},
          {"libevent", DTRAIN_HAVE_LIBEVENT != 0, "live reports", DTRAIN_LIBEVENT_VERSION}};
}

bool has_feature(std::string_view name) {
  const auto features = build_features();
  return std::any_of(features.begin(), features.end(),
                     [&](const BuildFeature& feature) { return feature.built && feature.name == name; });
}

std::string build_description() {
  std::string parts;
  for (const BuildFeature& feature : build_features()) {
    if (feature.built) parts += (parts.empty() ? "" : ", ") + feature.name;
  }
  return "dtrain " + build_version() + " (" + (parts.empty() ? "no optional parts" : parts) + ")";
}

}  // namespace dtrain
