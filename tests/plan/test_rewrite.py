"""Layouts written into files: what else the files have stays, byte by byte, and the program is that of the old file with
the layout on the command line."""
import re

import pytest

from texts import EXAMPLES, PARALLEL, ROOT, derived, example, mpc, report, without_layout, written

BLOCK = "parallel {\n    mesh  dp = 2\n    shard batch over dp\n}\n"
COMMENT = "mpc plan, h100: 64 ranks\n1.25 s a step"
ABOVE = "# mpc plan, h100: 64 ranks\n#   1.25 s a step\n"
DIMS = "dim batch\n"

CASES = [  # what the file is like, the file, what it is then with BLOCK, COMMENT and micro-batches of 4
    ("no layout", "dim batch\ntrain {\n    microbatch = 8\n}\n", f"dim batch\ntrain {{\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("no train", DIMS, f"dim batch\n\ntrain {{\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("an empty file", "", f"train {{\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("no newline at the end", "train {\n    microbatch = 8\n}", f"train {{\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("an empty line at the end", "train {\n    microbatch = 8\n}\n\n", f"train {{\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("none behind the layout", "train { microbatch = 8 }\nparallel {\n}", f"train {{ microbatch = 4 }}\n{ABOVE}{BLOCK}"[:-1]),
    ("train behind the layout", "parallel {\n}\ntrain {\n    microbatch = 8   # few\n}\n", f"{ABOVE}{BLOCK}train {{\n    microbatch = 4   # few\n}}\n"),
    ("a layout in one line", "parallel { mesh dp = 1 } # the end\ntrain { microbatch = 8 }\n", f"{ABOVE}{BLOCK[:-1]} # the end\ntrain {{ microbatch = 4 }}\n"),
    ("a layout without train", "dim batch\n\n# ranks\nparallel {\n}\n", f"dim batch\n\ntrain {{\n    microbatch = 4\n}}\n\n# ranks\n{ABOVE}{BLOCK}"),
    ("train in one line", "train { batch = 8 } # much\n", f"train {{\n    batch = 8\n    microbatch = 4\n}} # much\n\n{ABOVE}{BLOCK}"),
    ("empty train", "train {}\n", f"train {{\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("empty train in two lines", "train {  # nothing\n}\n", f"train {{  # nothing\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("the brace behind a setting", "train {\n    batch = 8 }\n", f"train {{\n    batch = 8\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("a setting behind the brace", "train { batch = 8\n    seed = 1 }\n", f"train {{ batch = 8\n    microbatch = 4\n    seed = 1 }}\n\n{ABOVE}{BLOCK}"),
    ("aligned settings", "train {\n    batch      = 512   # much\n    seed       = 1\n}\n",
     f"train {{\n    batch      = 512   # much\n    microbatch = 4\n    seed       = 1\n}}\n\n{ABOVE}{BLOCK}"),
    ("widely aligned settings", "train {\n    batch       = 512\n    skip_spikes = 4\n}\n",
     f"train {{\n    batch       = 512\n    microbatch  = 4\n    skip_spikes = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("a group last", "train {\n    seed = 1\n    group \"wte\" (lr = 0.1)\n}\n",
     f"train {{\n    seed = 1\n    group \"wte\" (lr = 0.1)\n    microbatch = 4\n}}\n\n{ABOVE}{BLOCK}"),
    ("an expression", "train {\n    microbatch = 2 * (3 + 1)  # 8\n}\n", f"train {{\n    microbatch = 4  # 8\n}}\n\n{ABOVE}{BLOCK}"),
    ("comments in the layout", "train { microbatch = 8 }\n# mine\nparallel {  # why\n    mesh  dp = 1\n    # \"alone\n    pipeline h over pp, schedule = \"a#b.csv\" # by hand  \n}\n",
     f"train {{ microbatch = 4 }}\n# mine\n# why\n# \"alone\n# by hand\n{ABOVE}{BLOCK}"),
    ("an older comment", "train { microbatch = 8 }\n# mine\n# mpc plan, a100: 8 ranks\n#   9 s a step\n#   all of it\n# mpc planned this\nparallel {\n}\n",
     f"train {{ microbatch = 4 }}\n# mine\n# mpc planned this\n{ABOVE}{BLOCK}"),
    ("an older comment elsewhere", "# mpc plan, a100\n\ntrain { microbatch = 8 }\nparallel {\n}\n", f"# mpc plan, a100\n\ntrain {{ microbatch = 4 }}\n{ABOVE}{BLOCK}"),
    ("what stands between", "parallel {\n}\n\n# Bytes: \u00e4\u20ac\t \nconst n = 1   # x\n\n\n\ntrain { microbatch = 8 }\n",
     f"{ABOVE}{BLOCK}\n# Bytes: \u00e4\u20ac\t \nconst n = 1   # x\n\n\n\ntrain {{ microbatch = 4 }}\n"),
]


def write_bytes(path, text):
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("before, after", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_texts(before, after, ending, tmp_path):
    path = write_bytes(tmp_path / "m.mdl", before.replace("\n", ending))
    if "\n" not in before:  # nothing says how lines end
        ending = "\n"
    made = written(path, BLOCK, COMMENT, 4)
    assert made == after.replace("\n", ending)
    assert written(write_bytes(path, made), BLOCK, COMMENT, 4) == made


@pytest.mark.parametrize("before, abreast, after", [
    ("train {\n    batch = 8  # much\n    seed = 1\n}\n", 2, "train {\n    batch = 8  # much\n    microbatch = 4\n    abreast = 2\n    seed = 1\n}\n"),
    ("train {\n    microbatch = 8\n    seed = 1\n}\n", 2, "train {\n    microbatch = 4\n    abreast    = 2\n    seed = 1\n}\n"),
    ("train {\n    abreast = 3  # at once\n}\n", 1, "train {\n    abreast = 1  # at once\n    microbatch = 4\n}\n"),
    ("train {\n    batch = 8\n}\n", 1, "train {\n    batch = 8\n    microbatch = 4\n}\n"),
    ("train { batch = 8 }\n", 2, "train {\n    batch = 8\n    microbatch = 4\n    abreast = 2\n}\n"),
    ("dim batch\n", 2, "dim batch\n\ntrain {\n    microbatch = 4\n    abreast = 2\n}\n"),
    ("dim batch\n", 1, "dim batch\n\ntrain {\n    microbatch = 4\n}\n")])
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_micro_batches_abreast(before, abreast, after, ending, tmp_path):
    path = write_bytes(tmp_path / "m.mdl", before.replace("\n", ending))
    made = written(path, BLOCK, COMMENT, 4, abreast)
    assert made == f"{after}\n{ABOVE}{BLOCK}".replace("\n", ending)
    assert written(write_bytes(path, made), BLOCK, COMMENT, 4, abreast) == made


def test_without_a_comment_or_a_micro_batch(tmp_path):
    path = write_bytes(tmp_path / "m.mdl", f"train {{ seed = 1 }}\n{ABOVE}parallel {{\n}}\n")
    assert written(path, BLOCK) == f"train {{ seed = 1 }}\n{ABOVE}{BLOCK}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_else_stays(name, tmp_path):
    """Of every example, with its layout and without; formatted files stay so."""
    for text in (example(name), without_layout(example(name))):
        path = write_bytes(tmp_path / "m.mdl", text)
        block = derived(path)
        made = written(path, block, COMMENT, 2)
        inside = [comment.rstrip() for old in PARALLEL.findall(text) for comment in re.findall(r"#.*", old)]
        put = "".join(f"{comment}\n" for comment in inside) + ABOVE + block
        assert made.count(put) == 1
        others = [re.sub(r"\n +microbatch *= *\d+", "", other) for other in (without_layout(text), made.replace(put, ""))]
        assert others[0].rstrip("\n") == others[1].rstrip("\n")
        assert re.findall(r"\n +microbatch *= *(\d+)", made) == ["2"]
        assert written(write_bytes(path, made), block, COMMENT, 2) == made
        assert mpc("fmt", path) == made


@pytest.mark.parametrize("name, mesh, options", [
    ("gpt2", dict(pp=2, tp=2), ["layers=4"]), ("mixtral", dict(dp=2, ep=2), ["layers=2"]), ("vit", dict(dp=2), ["layers=2"]), ("chars", dict(tp=2), [])])
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_the_program_is_that_of_the_command_line(name, mesh, options, ending, tmp_path):
    """The report of the new file, and that of the old one with a mesh and a micro-batch."""
    (block,) = PARALLEL.findall(example(name))
    for axis, size in mesh.items():
        block = re.sub(rf"\b{axis} = 1\b", f"{axis} = {size}", block)
    path = write_bytes(tmp_path / f"{name}.mdl", example(name).replace("\n", ending))
    made = written(path, block, COMMENT, 2)
    write_bytes(path, made)
    sizes = [f"-D{size}" for size in options]
    given = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    old = report(ROOT / f"examples/{name}.mdl", *sizes, f"--mesh={given}", "--set", "train.microbatch=2")
    new = report(path, *sizes)
    assert new.pop("source") != old.pop("source")
    assert new == old
