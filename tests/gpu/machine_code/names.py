"""From a kernel's C++ name to its row of the table. Kernels that differ in little share one, so that it can be read."""
import re

TYPES = {"float": "f32", "__nv_bfloat16": "half", "__half": "half", "double": "f64", "unsigned char": "u8", "unsigned short": "u16",
         "unsigned int": "u32", "unsigned long": "u64", "long": "i64", "int": "i32", "dtrain::Bool": "bool"}


def split_arguments(text):
    """ "a, b<c, d>" to ["a", "b<c, d>"]."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [part for part in parts + [text[start:].strip()] if part]


def template_of(name):
    """(name, arguments) of "name<arguments>"."""
    head, _, rest = name.partition("<")
    return head, split_arguments(rest[:rest.rindex(">")]) if rest else []


def without_parameters(demangled):
    """ "void a::b<c>(int)" to "a::b<c>"."""
    depth = 0
    for i in range(len(demangled) - 1, -1, -1):
        depth += (demangled[i] == ")") - (demangled[i] == "(")
        if demangled[i] == "(" and depth == 0:
            return demangled[:i].removeprefix("void ")
    return demangled


def types_in(text):
    """The types of elements that a name speaks of, in their order."""
    words = sorted(TYPES, key=len, reverse=True)
    return [TYPES[found] for found in re.findall(r"(?<![\w:])(?:" + "|".join(words) + r")(?!\w)", text)]


def row_of(demangled):
    """The row of a kernel: "norm::sums_kernel<Moments,half,8>"."""
    name = without_parameters(demangled.replace("(anonymous namespace)::", "")).replace("dtrain::cuda::", "")
    head, arguments = template_of(name)
    if not arguments:
        return head
    # An activation of two inputs, or its gradient, computes between its loads, where a sum only waits for both.
    kind = "activation, " if re.search(r"functor::(formulas::)?\w+(Grad|_grad|_mul)\b", name) else ""
    # A sine turns large angles by digits of 2 / pi that it looks up in memory of its own.
    if re.search(r"functor::(Sin|Cos)\b", name):
        kind = "sine, "
    if head == "strided_kernel":  # how many arrays it walks makes it what it is
        return f"{head}<{kind}{re.sub('[^0-9]', '', arguments[0])} arrays>"
    plain = [re.sub(r"^\([\w:]+\)", "", a) for a in arguments]  # (PoolKind)0
    if head == "dense_kernel":  # <Out, Op, In…>
        return f"{head}<{kind}{TYPES[plain[0]]} of {' '.join(TYPES[a] for a in plain[2:]) or 'nothing'}>"
    structs = [template_of(a)[0].split("::")[-1] for a in plain if a not in TYPES and not a.isdigit()]
    if head == "norm::finish_kernel":  # a little work at the end of sums
        structs = []
    types = list(dict.fromkeys(TYPES[a] for a in plain if a in TYPES)) or types_in(name)[:1]
    widths = [a for a in plain if a.isdigit()] or [a for a in re.findall(r"\(int\)(\d+)>", name)[:1]]
    return f"{head}<{','.join(structs + types + widths)}>"
