// The loops of lane_conv.h that are made for a number of channels at once; included behind forward_tiles and
// backward_input_tiles of each instruction set, inside its namespace.

void forward(const LaneConv& conv, const float* x, const float* weight, const float* bias, float* pooled,
             std::uint8_t* mask) {
  switch (channel_tile(conv.outputs)) {
    case 8:
      return forward_tiles<8>(conv, x, weight, bias, pooled, mask);
    case 10:
      return forward_tiles<10>(conv, x, weight, bias, pooled, mask);
    default:
      return forward_tiles<12>(conv, x, weight, bias, pooled, mask);
  }
}

void backward_input(const LaneConv& conv, const float* dy, const float* weight, float* dx) {
  switch (channel_tile(conv.channels)) {
    case 8:
      return backward_input_tiles<8>(conv, dy, weight, dx);
    case 10:
      return backward_input_tiles<10>(conv, dy, weight, dx);
    default:
      return backward_input_tiles<12>(conv, dy, weight, dx);
  }
}
