"""Circles of files: each needs a symbol that the next one defines, by their objects.  None may have more than LARGEST files.

    circles.py [FOLDER]     prints every circle with what closes it, of those with a file in FOLDER (frontend)
"""
import collections
import os
import pathlib
import subprocess
import sys

LARGEST = 8
# What is linked with each other.  A trainer has one of two devices, which define the same.
PROGRAMS = {"mpc": (["ir", "frontend", "passes", "codegen", "driver", "gen"], []),
            "trainers": (["runtime"], ["runtime/cuda/"]),
            "trainers for GPUs": (["runtime"], ["runtime/cpu/", "runtime/net/comm_mpi.o"])}
LEVELS = ("x86-64-v3.o", "x86-64-v4.o")  # the kernels again, for more instructions


def objects(build, folders, without):
    for folder in folders:
        for path in sorted((build / folder).rglob("*.o")):
            name = str(path.relative_to(build))
            if not name.startswith(tuple(without)) and not name.endswith(LEVELS) and source(name).exists():
                yield name


def source(name):
    """Of an object.  What bison and flex make is a file of the front end's."""
    if name.startswith("gen/"):
        return next(pathlib.Path("frontend").rglob({"gen/grammar.o": "grammar.y", "gen/scan.o": "scan.l"}[name]))
    return pathlib.Path(name).with_suffix("").with_suffix(".c")


def needs(build, names):
    """Of each file the files whose symbols it needs, and which: {file: {other: [symbol]}}."""
    defines, wants, at = {}, collections.defaultdict(set), None
    if not names:
        return {}
    for line in subprocess.run(["nm", "-g", *names], cwd=build, capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if len(words) == 1 and line.endswith(":"):
            at = str(source(line[:-1]))
        elif words and words[-2] == "U":
            wants[at].add(words[-1])
        elif words:
            defines[words[-1]] = at
    arrows = {str(source(name)): collections.defaultdict(list) for name in names}
    for file, symbols in wants.items():
        for symbol in sorted(symbols):
            if defines.get(symbol, file) != file:
                arrows[file][defines[symbol]].append(symbol)
    return arrows


def circles(arrows):
    """Strongly connected components of several files, the largest first (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in arrows[file]:
            if other not in index:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == index[file]:
            found.append(sorted(stack[stack.index(file):]))
            del stack[stack.index(file):]
    for file in sorted(arrows):
        if file not in index:
            visit(file)
    return sorted((circle for circle in found if len(circle) > 1), key=len, reverse=True)


def text_of(circle, arrows):
    lines = [f"a circle of {len(circle)} files:"]
    for file in circle:
        for other in circle:
            if other in arrows[file]:
                lines.append(f"    {file} needs {other}: {', '.join(arrows[file][other])}")
    return "\n".join(lines)


def main():
    build = pathlib.Path(os.environ.get("BUILD", "build"))
    found = {}
    for folders, without in PROGRAMS.values():
        arrows = needs(build, list(objects(build, folders, without)))
        for circle in circles(arrows):
            found[tuple(circle)] = text_of(circle, arrows)
    if len(sys.argv) > 1:
        print("\n".join(text for circle, text in found.items() if any(file.startswith(sys.argv[1]) for file in circle)))
    large = [circle for circle in found if len(circle) > LARGEST]
    for circle in large:
        print(found[circle])
    if large:
        print(f"more than {LARGEST} files in a circle are one room with many doors: move what is in the wrong file")
        sys.exit(1)
    print(f"{len(found)} circles of files, with {sum(map(len, found))} files, none of more than {LARGEST}")


main()
