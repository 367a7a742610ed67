"""Counts the collectives of a compiled XLA module, by the conventions of `mpc report`.

Of n ranks each sends (n - 1) / n of a gathered tensor, of one to be scattered, or of what it deals out, twice that of one to be
reduced, and all of what it passes on.  XLA for CPU leaves an all-reduce of which each rank reads its slice as it is; XLA for
GPU and TPU makes it a reduce-scatter.  `as_scatter` counts those as such: it is the figure to compare with.
"""

import math
import re

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(?P<name>[\w.-]+) = (?P<type>\(.*?\)|\S+) (?P<op>[a-z-]+)\((?P<operands>.*?)\)(?P<rest>.*)$")
SEEN_THROUGH = {"get-tuple-element", "bitcast", "reshape", "transpose", "copy", "convert"}


def sizes_of(text):
    """Bytes of each array of a type."""
    return [BYTES[dtype] * math.prod(int(n) for n in dims.split(",") if n)
            for dtype, dims in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", text)]


def group_size(rest):
    """How many ranks a collective is over, from any of the forms of replica_groups."""
    if mesh := re.search(r"replica_groups=mesh\[(.*?)\].*? \{(.*?)\}", rest):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh[1]))
        parts = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", mesh[2])
        return math.prod(int(part or sizes[axis]) for axis, part in parts)
    if tiled := re.search(r"replica_groups=\[\d+,(\d+)\]", rest):
        return int(tiled[1])
    return len(re.search(r"replica_groups=\{\{([\d,]+)\}", rest)[1].split(","))


def permuted_share(rest, ranks=8):
    """Of the ranks of a collective-permute, the share that sends."""
    pairs = re.findall(r"\{(\d+),(\d+)\}", re.search(r"source_target_pairs=\{(.*?)\}\}", rest)[0])
    return sum(source != target for source, target in pairs) / ranks


class Module:
    """Instructions by name, with who reads them, into fusions and through what only renames."""

    def __init__(self, text):
        self.instructions, self.readers, self.parameters = {}, {}, {}
        computation = None
        for line in text.splitlines():
            if (found := INSTRUCTION.match(line)):
                self.add(found, computation)
            elif (opened := re.match(r"(?:ENTRY )?%([\w.-]+) \(.*\{$", line)):
                computation = opened[1]

    def add(self, found, computation):
        self.instructions[found["name"]] = found
        if found["op"] == "parameter":
            self.parameters[computation, int(found["operands"])] = found["name"]
        for place, operand in enumerate(re.findall(r"%([\w.-]+)", found["operands"])):
            self.readers.setdefault(operand, []).append((found, place))

    def only_sliced(self, name, size, ranks):
        """Do all that read this value take no more than a rank's part of it?"""
        readers = self.readers.get(name, [])
        return bool(readers) and all(self.slices(*reader, size, ranks) for reader in readers)

    def slices(self, reader, place, size, ranks):
        if reader["op"] == "fusion":
            computation = re.search(r"calls=%([\w.-]+)", reader["rest"])[1]
            return self.only_sliced(self.parameters[computation, place], size, ranks)
        if reader["op"] in SEEN_THROUGH:
            return self.only_sliced(reader["name"], size, ranks)
        return reader["op"] == "dynamic-slice" and sum(sizes_of(reader["type"])) * ranks <= size

    def scattered(self, found, ranks):
        """Bytes of an all-reduce, possibly of several tensors, that a reduce-scatter could move."""
        sizes = sizes_of(found["type"])
        if len(sizes) == 1:
            return sizes[0] if self.only_sliced(found["name"], sizes[0], ranks) else 0
        elements = [reader for reader, _ in self.readers.get(found["name"], []) if reader["op"] == "get-tuple-element"]
        return sum(size for element in elements for size in sizes_of(element["type"])
                   if self.only_sliced(element["name"], size, ranks))


def sent(module, found):
    """(bytes that a rank sends, the same with slices of sums counted as scattered sums)"""
    kind, own = found["op"], sum(sizes_of(found["type"]))
    if kind == "collective-permute":
        return (own * permuted_share(found["rest"]),) * 2
    ranks = group_size(found["rest"])
    share = (ranks - 1) / ranks
    if kind == "all-reduce":
        return 2 * own * share, (2 * own - module.scattered(found, ranks)) * share
    return (own * share * (ranks if kind == "reduce-scatter" else 1),) * 2


def traffic(text):
    """{messages by kind, bytes, as_scatter} of all collectives of a module without loops."""
    module, messages, total, least = Module(text), dict.fromkeys(KINDS, 0), 0.0, 0.0
    if any(found["op"] in ("while", "conditional") for found in module.instructions.values()):
        raise ValueError("the module has loops: how often their collectives run is not known")
    collectives = [found for found in module.instructions.values() if found["op"] in KINDS]
    if len(collectives) != len(re.findall(rf" (?:{'|'.join(KINDS)})(?:-start)?\(", text)):
        raise ValueError("the module has collectives in a form that is not known here")
    for found in collectives:
        plain, scattered = sent(module, found)
        messages[found["op"]] += 1
        total, least = total + plain, least + scattered
    return dict(messages=messages, bytes=total, as_scatter=least)
