// A shared object that says where its libraries lie.
extern "C" int dtrain_with_run_path() { return 0; }
