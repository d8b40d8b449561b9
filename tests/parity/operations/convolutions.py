"""Golden cases of convolutions_test.cc."""
import torch.nn.functional as F
from make_golden import Case

cases = {
    "conv1d": Case([[2, 3, 7], [4, 3, 3], [4]], F.conv1d),
    "conv1d stride 2 padding 1": Case([[1, 3, 8], [4, 3, 3], [4]], lambda x, w, b: F.conv1d(x, w, b, 2, 1)),
    "conv1d dilation 2 groups 2": Case([[1, 4, 7], [4, 2, 2]], lambda x, w: F.conv1d(x, w, dilation=2, groups=2)),
    "conv3d": Case([[1, 2, 4, 4, 3], [3, 2, 2, 3, 2], [3]], F.conv3d),
    "conv3d stride 2 padding 1": Case([[1, 2, 5, 4, 4], [3, 2, 3, 3, 3], [3]], lambda x, w, b: F.conv3d(x, w, b, 2, 1)),
    "conv3d dilation 2 groups 2": Case([[1, 4, 4, 3, 3], [4, 2, 2, 2, 2]], lambda x, w: F.conv3d(x, w, dilation=(2, 1, 1), groups=2)),
    "conv_transpose2d": Case([[2, 3, 3, 4], [3, 2, 3, 3], [2]], F.conv_transpose2d),
    "conv_transpose2d stride 2 padding 1 output_padding 1": Case([[1, 3, 3, 3], [3, 2, 3, 3], [2]], lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1)),
    "conv_transpose2d dilation 2 groups 2": Case([[1, 4, 3, 3], [4, 1, 2, 2]], lambda x, w: F.conv_transpose2d(x, w, dilation=2, groups=2)),
}
