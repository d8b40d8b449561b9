// A module that needs a library which cannot be found.
extern "C" int dtrain_not_there();
extern "C" int dtrain_needs_it() { return dtrain_not_there(); }
