"""Arrows between folders: which may include which, and none in a circle.

A folder's own files, which lie in no folder of it, count as one folder more: all others may use them.
"""
import pathlib
import re
import sys

MAY_INCLUDE = {"ir": [], "frontend": ["ir"], "passes": ["ir"], "codegen": ["ir", "runtime"], "runtime": [],
               "driver": ["ir", "frontend", "passes", "codegen", "runtime"]}
GENERATED = {"charts.h", "drawing.h", "grammar.h", "machines.h", "new.h", "optimizers.h", "page.h", "pages_of_docs.h", "templates.h"}


def found(path, name):
    """The file that `path` means by `name`, by the folders that its compiler is given."""
    top = path.parts[0]
    given = [top] if top == "runtime" else ["ir", "frontend", "passes", "codegen", "driver", "."]
    for folder in [path.parent, *map(pathlib.Path, given)]:
        plain = (folder / name).resolve().relative_to(pathlib.Path.cwd())
        if plain.is_file():
            return plain
    return None


def includes():
    """(file, line, the file that it includes), for all that lies in the folders above."""
    for top in MAY_INCLUDE:
        for path in sorted(pathlib.Path(top).rglob("*.*")):
            if path.suffix not in (".c", ".h", ".l", ".y", ".def", ".cuh") or path.parent.name == "templates":
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                name = re.match(r'\s*#\s*include "(.*)"', line)
                if name and name[1] not in GENERATED:
                    yield path, number, name[1]


def circle(arrows):
    """Folders of which each includes the next and the last one the first; None."""
    def walk(path):
        for other in sorted(arrows.get(path[-1], ())):
            if other in path:
                return path[path.index(other):]
            if other not in done and (way := walk([*path, other])):
                return way
        done.add(path[-1])
        return None
    done = set()
    return next(filter(None, (walk([folder]) for folder in sorted(arrows))), None)


def main():
    wrong, arrows = [], {}
    for path, number, name in includes():
        target = found(path, name)
        if not target:
            wrong.append(f'{path}:{number}: there is no "{name}"')
        elif target.parts[0] not in [path.parts[0], *MAY_INCLUDE[path.parts[0]]]:
            wrong.append(f"{path}:{number}: {path.parts[0]}/ may not know {target.parts[0]}/")
        elif target.parent != path.parent:
            arrows.setdefault(str(path.parent), {}).setdefault(str(target.parent), f"{path}:{number}")
    if way := circle(arrows):
        wrong.append("folders that include each other in a circle:")
        wrong += [f"    {arrows[a][b]}: {a}/ includes {b}/" for a, b in zip(way, [*way[1:], way[0]])]
    print("\n".join(wrong) or f"{len(arrows)} folders include others, none in a circle")
    sys.exit(bool(wrong))


main()
