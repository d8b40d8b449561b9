"""Golden cases of indexing_test.cc."""
import torch, torch.nn.functional as F
from make_golden import Case

picks = [[[2, 0], [0, 1]], [[1, 2], [2, 2]]]

cases = {
    "gather dim 1": Case([[2, 3, 4]], lambda x, i: x.gather(1, i), indices=[picks]),
    "gather dim -1": Case([[2, 3, 4]], lambda x, i: x.gather(-1, i), indices=[picks]),
    "scatter_add dim 1": Case([[2, 3, 4], [2, 2, 2]], lambda x, y, i: x.scatter_add(1, i, y), indices=[picks]),
    "cumsum dim 1": Case([[2, 5, 3]], lambda x: x.cumsum(1)),
    "cumsum dim 0": Case([[40]], lambda x: x.cumsum(0)),
    "sort": Case([[3, 7]], lambda x: torch.sort(x, stable=True)),
    "sort dim 0 descending": Case([[7, 3]], lambda x: torch.sort(x, dim=0, descending=True, stable=True)),
    "topk 3": Case([[3, 7]], lambda x: torch.topk(x, 3)),
    "topk 2 smallest dim 0": Case([[7, 3]], lambda x: torch.topk(x, 2, dim=0, largest=False)),
    "pad": Case([[2, 3]], lambda x: F.pad(x, (1, 2, 0, 1), value=0.5)),
    "pad cuts off": Case([[4, 5]], lambda x: F.pad(x, (-1, 2, 1, -2))),
    "matmul int64": Case([], torch.matmul, indices=[[[1, -2, 3], [4, 5, -6]], [[7, 8], [-9, 10], [11, 12]]]),
    "matmul int64 wraps": Case([], torch.matmul, indices=[[[2 ** 62, 3]], [[2], [-5]]]),
    "sort int64": Case([], lambda i: torch.sort(i, stable=True), indices=[[3, 1, 3, -2, 1]]),
    "cumsum int64": Case([], lambda i: i.cumsum(0), indices=[[3, 1, 3, -2, 1]]),
    "clamp int64": Case([], lambda i: i.clamp(-1, 2), indices=[[3, 1, 3, -2, 1]]),
}
