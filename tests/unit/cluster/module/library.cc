// A library that is nowhere where the dynamic linker looks, as MPI's on a machine without MPI.
extern "C" int dtrain_not_there() { return 0; }
