#!/usr/bin/python3
"""Scripts, each in a process of its own that is forked from one that has read PyTorch, which takes two seconds of a processor.

    forked.py SCRIPT [ARGUMENT ...] [+ SCRIPT [ARGUMENT ...]]...

One after the other, whatever becomes of them; the status is 1 if one of them fails."""
import os
import runpy
import sys
from pathlib import Path

import torch  # noqa: F401 (for the scripts)


def run(words):
    """To its end, in this process."""
    sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
    runpy.run_path(words[0], run_name="__main__")


def is_good(words):
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        run(words)
        sys.exit()
    return os.waitpid(process, 0)[1] == 0


def split(words):
    """At each +."""
    ends = [at for at, word in enumerate(words) if word == "+"] + [len(words)]
    return [words[begin:end] for begin, end in zip([0, *(end + 1 for end in ends)], ends)]


if __name__ == "__main__":
    sys.exit(not all([is_good(words) for words in split(sys.argv[1:])]))
