#include "models/program/build.h"

namespace dtrain {

std::string build_version() { return DTRAIN_VERSION; }

std::vector<BuildFeature> build_features() {
  return {{"oneDNN", DTRAIN_HAVE_ONEDNN != 0, "fast CPU convolution and matmul"},
          {"Gloo", DTRAIN_HAVE_GLOO != 0, "CPU collectives without MPI"},
          {"MPI", DTRAIN_HAVE_MPI != 0, "CPU collectives under mpirun"},
          {"CUDA", DTRAIN_HAVE_CUDA != 0, "training on NVIDIA GPUs, as a module"},
          {"NCCL", DTRAIN_HAVE_NCCL != 0, "collectives between GPUs"}};
}

std::string build_description() {
  std::string parts;
  for (const BuildFeature& feature : build_features()) {
    if (feature.built) parts += (parts.empty() ? "" : ", ") + feature.name;
  }
  return "dtrain " + build_version() + " (" + (parts.empty() ? "no optional parts" : parts) + ")";
}

}  // namespace dtrain
