// x[rows] is a copy: what is assigned to it would be lost.
// refused: no viable overloaded|passing .* discards qualifiers|no match for|deleted
#include "runtime/tensor/tensor.h"

int main() {
  dtrain::Tensor x, y, rows;
#ifdef MUST_NOT_COMPILE
  x[rows] = y;
#else
  x[0] = y;
#endif
}
