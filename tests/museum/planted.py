"""What the entries NAME.mdl of this folder say: a bug of another system, told and planted.

The comment at the top of an entry begins with its title and the address of the public thread.  What follows tells what
the bug was.  Then come mistakes, each of this form:

    # PLANT after PASS in @FUNCTION: what is done wrong
    #   replace REGULAR EXPRESSION, which matches in one place of the function
    #   by TEMPLATE of Python's re
    # NOTICED by types, reals, residues

with one or more pairs of `replace` and `by`.  A `*` in FUNCTION stands for any text, and the mistake is
made in each of those functions that matches.  NOTICED names the checks that notice it, and no others: "types" is the
verifier, "reals" and "residues" are the reference interpreter.
"""
import fnmatch
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
CHECKS = ["types", "reals", "residues"]


class Plant:
    """One mistake of an entry."""

    def __init__(self, after, function, what, edits, noticed):
        self.after, self.function, self.what, self.edits, self.noticed = after, function, what, edits, noticed

    def apply(self, text):
        pieces = re.split(r"(?m)^(?=  func )", text)
        places = [at for at, piece in enumerate(pieces) if self.is_meant(piece)]
        for pattern, template in self.edits:
            counts = []
            for at in places:
                pieces[at], count = re.subn(pattern, template, pieces[at], flags=re.M)
                counts.append(count)
            assert max(counts, default=0) == 1, f"matches in the functions meant, not one or none each: {counts}: {pattern}"
        return "".join(pieces)

    def is_meant(self, piece):
        name = re.match(r"  func (?:\w+ )?@([^(]+)\(", piece)
        return name is not None and fnmatch.fnmatchcase(name[1], self.function)


class Entry:
    def __init__(self, path):
        lines = re.match(r"(?:#.*\n)+", path.read_text())[0].splitlines()
        self.path, self.name, self.lines = path, path.stem, [line[1:].removeprefix(" ") for line in lines]
        self.title, self.address, self.plants = self.lines[0], self.lines[1], []
        at = 0
        while at < len(self.lines):
            heading = re.fullmatch(r"PLANT after (\w+) in @(\S+): (.*)", self.lines[at])
            at = self.read_plant(heading, at + 1) if heading else at + 1

    def read_plant(self, heading, at):
        """The lines behind a heading; gives the number of the first that is not part of it."""
        what, edits = heading[3], []
        while not re.match("  replace ", self.lines[at]):
            what, at = f"{what} {self.lines[at].strip()}", at + 1
        while re.match("  replace ", self.lines[at]):
            assert re.match("  by( |$)", self.lines[at + 1]), f"{self.name}: what is it replaced by?"
            edits.append((self.lines[at].removeprefix("  replace "), self.lines[at + 1][5:]))
            at += 2
        noticed = re.fullmatch("NOTICED by (.*)", self.lines[at])
        assert noticed, f"{self.name}: who notices that {what}?"
        self.plants.append(Plant(heading[1], heading[2], what, edits, noticed[1].split(", ")))
        return at + 1


def entries():
    return [Entry(path) for path in sorted(HERE.glob("*.mdl"))]
