"""How far dtrain's results may be from the reference, and how far they are.

The reference is PyTorch in float64 on the same (rounded) arguments; PyTorch's own error in the case's dtype is
the yardstick: dtrain's may be four times that, or a small multiple of the dtype's epsilon where PyTorch happens
to be lucky. What is not finite has to be so in the same places as PyTorch's own result."""
import math

import torch

EPSILON = {torch.float32: 2.0 ** -23, torch.bfloat16: 2.0 ** -7, torch.float64: 2.0 ** -52}
TIMES = 4  # PyTorch's own error
LEAST = {torch.float32: 8, torch.bfloat16: 2, torch.float64: 256}  # epsilons; the reference is float64 itself
# Each element by itself: one value goes in, or two, and one comes out. Others are measured by the largest element.
BY_ELEMENT = {"unary", "binary", "where", "views", "activations"}


class Verdict:
    """The worst errors of a case in epsilons; `what` says which result is wrong, and is empty where none is."""

    def __init__(self):
        self.ours, self.peers, self.what, self.refusal = 0.0, 0.0, "", False


def sizes(reference, magnitude, by_element):
    """What an error is a share of, element by element."""
    size = reference.abs().nan_to_num(0.0, 0.0, 0.0)
    if magnitude is not None:
        size = torch.maximum(size, magnitude.abs().nan_to_num(0.0, 0.0, 0.0))
    return size if by_element else torch.full_like(size, float(size.max()))


def worst(values, reference, size, finite, smallest):
    """The largest error as a share of `size`, but not below the smallest normal number of the dtype."""
    error = (values - reference).abs() / size.clamp(min=smallest)
    error = error[finite]
    return float(error.max()) if error.numel() else 0.0


def allowed(dtype, peers):
    return max(TIMES * peers, LEAST[dtype] * EPSILON[dtype])


def unlike(values, others):
    """Where one is NaN, infinite or finite and the other is not so."""
    return (values.isnan() != others.isnan()) | (
        (values.isinf() | others.isinf()) & (values != others) & ~values.isnan())


def compare_one(name, ours, own, reference, magnitude, by_element, verdict):
    if list(ours.shape) != list(own.shape):
        verdict.what = f"{name} has shape {list(ours.shape)}, PyTorch's {list(own.shape)}"
        return
    if not own.dtype.is_floating_point:
        if not torch.equal(ours.to(own.dtype), own):
            verdict.what, verdict.ours = f"{name} differs", math.inf
        return
    if own.numel() == 0:
        return
    dtype, info = own.dtype, torch.finfo(own.dtype)
    own, ours, reference = own.double(), ours.double(), reference.double()
    finite = own.isfinite() & reference.isfinite()
    size = sizes(reference, magnitude, by_element)
    peers = worst(own, reference, size, finite, info.tiny)
    bad = unlike(ours, own) & unlike(ours, reference)  # where PyTorch's two disagree, either will do
    terms = reference if magnitude is None else torch.maximum(reference.abs(), magnitude.abs())
    bad &= ~(terms.abs() >= info.max / 2)  # at the edge of the range rounding decides, and the order of a sum
    if bool(bad.any()):
        at = int(bad.flatten().nonzero()[0])
        verdict.what = f"{name}[{at}] is {float(ours.flatten()[at])}, PyTorch's {float(own.flatten()[at])}"
        verdict.ours = math.inf
        return
    finite &= ours.isfinite()
    mine = worst(ours, reference, size, finite, info.tiny)
    verdict.ours, verdict.peers = max(verdict.ours, mine / EPSILON[dtype]), max(verdict.peers, peers / EPSILON[dtype])
    if mine > allowed(dtype, peers) and not verdict.what:
        verdict.what = f"{name} is {mine / EPSILON[dtype]:.3g} epsilons off, PyTorch's {peers / EPSILON[dtype]:.3g}"
    if by_element and not verdict.what and name == "y":
        sign = (own == 0) & (ours == 0) & (own.signbit() != ours.signbit())
        if bool(sign.any()):
            verdict.what = f"{name} has a zero of the other sign"


def compare(family, ours, own, reference, magnitude):
    """All results of a case. `magnitude`: the reference for the absolute values of the arguments, or {}."""
    verdict = Verdict()
    for name, tensor in own.items():
        if name not in ours:
            verdict.what = f"{name} is missing"
            return verdict
        compare_one(name, ours[name], tensor, reference[name], magnitude.get(name), family in BY_ELEMENT, verdict)
    for name in ours:
        if name not in own:
            verdict.what = f"PyTorch has no {name}"
    return verdict


def recorded(family, own, reference, magnitude):
    """What a replayed case is to give: the reference, and twice what an error may be (other machines add up in
    other orders). None for a case that rounding decides."""
    expected = {}
    for name, tensor in own.items():
        entry = {"shape": list(tensor.shape), "relative": 0, "absolute": 0}
        wide = tensor.to(torch.float64)
        if tensor.dtype.is_floating_point and tensor.numel():
            info, exact = torch.finfo(tensor.dtype), reference[name].double()
            if bool((exact.isfinite() & (exact.abs() >= info.max / 2)).any()):
                return None
            finite = wide.isfinite() & exact.isfinite()
            size = sizes(exact, magnitude.get(name), family in BY_ELEMENT)
            limit = 2 * allowed(tensor.dtype, worst(wide, exact, size, finite, info.tiny))
            by_element = family in BY_ELEMENT
            entry["relative"] = float("%.2g" % limit) if by_element else 0
            entry["absolute"] = float("%.2g" % (limit * max(info.tiny, 0 if by_element else float(size.max()))))
            wide = torch.where(finite, exact, wide)
        form = "%.17g" if tensor.dtype == torch.float64 else "%.9g"
        entry["values"] = " ".join(form % v for v in wide.flatten().tolist())
        expected[name] = entry
    return expected
