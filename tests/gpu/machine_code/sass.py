"""Reads the machine code of CUDA kernels as `nvdisasm -c` prints it (SASS): what each kernel loads and stores, how many bytes
of a thread are on their way before the first of them is used, and what is slow on a GPU.

Loads are counted where they stand in the code, not how often they run.
"""
import dataclasses
import re

INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^(\S+):$")
SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+),")
REGISTER = re.compile(r"\bR(\d+)\b")
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


@dataclasses.dataclass
class Instruction:
    address: int
    predicate: str  # "" where it always runs
    opcode: str  # with its suffixes: LDG.E.128
    operands: str

    @property
    def base(self):
        return self.opcode.split(".")[0]

    @property
    def width(self):
        """Bytes that a load or store moves."""
        return next((WIDTHS[part] for part in self.opcode.split(".")[1:] if part in WIDTHS), 4)


@dataclasses.dataclass
class Function:
    name: str  # mangled
    instructions: list = dataclasses.field(default_factory=list)
    labels: dict = dataclasses.field(default_factory=dict)  # name: address of what follows


def read_functions(lines):
    """The functions of a listing. What a kernel calls (divisions) is printed behind it and left out."""
    functions, current, inside = [], None, False
    waiting = []
    for line in lines:
        if section := SECTION.match(line):
            current = Function(section[1])
            functions.append(current)
            inside, waiting = True, []
        elif current is None or not inside:
            continue
        elif found := INSTRUCTION.match(line):
            instruction = Instruction(int(found[1], 16), found[2] or "", found[3], found[4])
            for label in waiting:
                current.labels[label] = instruction.address
            waiting = []
            current.instructions.append(instruction)
        elif label := LABEL.match(line):
            if label[1].startswith("$"):  # a called subroutine
                inside = False
            else:
                waiting.append(label[1])
    return functions


def is_global_load(instruction):
    return instruction.base in ("LDG", "LD")


def is_global_store(instruction):
    return instruction.base in ("STG", "ST")


def is_double(instruction):
    return instruction.base in ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX") or "F64" in instruction.opcode or "64H" in instruction.opcode


def divides_long(instruction):
    """A division of 64-bit integers: a call, or its first step where it stands in the code."""
    if instruction.base == "CALL":
        return re.search(r"(div|rem)_[su]64", instruction.operands) is not None
    return instruction.opcode.startswith("I2F.U64.RP")


def target_of(instruction, labels):
    """The address a branch goes to, or None."""
    if instruction.base != "BRA":
        return None
    found = re.search(r"`\((\S+)\)", instruction.operands)
    return labels.get(found[1]) if found else None


def loops_of(function):
    """[first, last] addresses of the loops: what a branch backwards encloses. A branch to itself is the padding behind the code."""
    loops = []
    for instruction in function.instructions:
        target = target_of(instruction, function.labels)
        if target is not None and target < instruction.address:
            loops.append((target, instruction.address))
    return loops


def registers_written(instruction):
    """Of a load."""
    first = REGISTER.match(instruction.operands)
    return set() if first is None else {int(first[1]) + i for i in range((instruction.width + 3) // 4)}


def runs_of_loads(function):
    """(bytes, in a loop) of each run of loads: those issued until one of them is used, or the path ends."""
    loops = loops_of(function)
    heads = {first for first, _ in loops}
    runs, awaited, total, looped = [], set(), 0, False

    def end_run():
        nonlocal total, looped
        if total:
            runs.append((total, looped))
        awaited.clear()
        total, looped = 0, False

    for instruction in function.instructions:
        if instruction.address in heads:
            end_run()
        if is_global_load(instruction):
            written = registers_written(instruction)
            sources = instruction.operands.split(",", 1)[-1]
            if awaited & (written | {int(r) for r in REGISTER.findall(sources)}):
                end_run()
            awaited |= written
            total += instruction.width
            looped = looped or any(first <= instruction.address <= last for first, last in loops)
            continue
        if awaited & {int(r) for r in REGISTER.findall(instruction.operands)}:
            end_run()
        target = target_of(instruction, function.labels)
        goes_back = target is not None and target <= instruction.address
        always_leaves = instruction.base in ("BRA", "EXIT") and not instruction.predicate
        if goes_back or always_leaves or instruction.base in ("CALL", "BAR"):
            end_run()
    end_run()
    return runs


@dataclasses.dataclass
class Counts:
    """What is to be known of one kernel. Bytes are of one thread."""
    widest_load: int = 0
    narrow_loads: int = 0  # narrower than the widest
    widest_store: int = 0
    in_flight: int = 0  # the longest run of loads in a loop; outside where no loop loads
    doubles: int = 0
    generic: int = 0
    long_divisions: int = 0
    local: int = 0  # loads and stores of memory that a thread has for itself: spills, and arrays that are not in registers


def count(function):
    code = function.instructions
    loads = [i.width for i in code if is_global_load(i)]
    runs = runs_of_loads(function)
    in_loops = [size for size, looped in runs if looped]
    widest = max(loads, default=0)
    return Counts(
        widest_load=widest,
        narrow_loads=sum(width < widest for width in loads),
        widest_store=max((i.width for i in code if is_global_store(i)), default=0),
        in_flight=max(in_loops or [size for size, _ in runs], default=0),
        doubles=sum(map(is_double, code)),
        generic=sum(i.base in ("LD", "ST") for i in code),
        long_divisions=sum(map(divides_long, code)),
        local=sum(i.base in ("LDL", "STL") for i in code))


def occupancy(registers, shared_bytes, architecture, threads=256):
    """Percent of a multiprocessor's threads that can be resident, by registers and shared memory, in blocks of `threads`.
    CUDA Programming Guide, compute capabilities 8.0 and 9.0."""
    shared_of = {"sm_80": 164 * 1024, "sm_90": 228 * 1024}[architecture]
    warps = threads // 32
    a_warp = (registers * 32 + 255) // 256 * 256  # handed out 256 at a time
    quarter = 16384 // a_warp if a_warp else 16  # warps in each quarter of the multiprocessor
    blocks = min(quarter * 4 // warps, 64 // warps, shared_of // (shared_bytes + 1024))
    return 100 * blocks * warps // 64
