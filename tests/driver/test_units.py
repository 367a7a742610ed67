"""Trainers are compiled in units, whose objects are cached by content."""
import os
import re
import shutil

import pytest
from conftest import MPC, ROOT, start

MODEL = ROOT / "examples/chars.mdl"
SMALL = ["-D", "embed=16", "-D", "heads=2", "-D", "ff=32", "--set", "train.batch=2"]
QUICK = {"CC": "tcc"} if shutil.which("tcc") else {}  # where it does not matter which: in a tenth of cc's time


@pytest.fixture
def compiles(tmp_path):
    """compiles(word, ..., CC="cc"): with its cache in kept/; what it prints, and names of the objects used since."""
    kept = tmp_path / "kept"

    def run(*words, **environment):
        before = {path.name: path.stat().st_mtime_ns for path in kept.glob("*")}
        known = ["--march=native"] if environment.get("CC") == "tcc" else []  # it knows no other
        done = start([MPC, "compile", MODEL, *SMALL, "-o", "out", *known, *words], tmp_path, 0,
                     **{"CC": "cc", "MPC_CACHE": str(kept), **environment})
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["plan.json", "trainer", "trainer.c"]
        after = {path.name: path.stat().st_mtime_ns for path in kept.glob("*")}
        return done, {name for name in after if name not in before}, {name for name in before if after.get(name) != before[name]}
    run.directory, run.kept = tmp_path, kept
    return run


def test_only_what_changed_is_compiled(compiles):
    _, new, used = compiles()
    assert len(new) >= 2 and not used
    assert compiles()[1:] == (set(), new)
    _, changed, used = compiles("--set", "train.optimizer.lr=0.5")
    assert len(changed) == 1 and len(used) == len(new) - 1, "a learning rate is in the tables alone"


def test_cached_objects_make_the_same_trainer(compiles):
    compiles()
    shutil.copy(compiles.directory / "out/trainer", compiles.directory / "first")
    compiles()
    (compiles.directory / "text").write_bytes(bytes(range(200)) * 9)
    said = compiles("--verbose", MPC_CACHE="no")[0].stdout
    command = next(line for line in said.splitlines() if "-std=" in line)
    start(["sh", "-c", command], compiles.directory, 0)  # trainer.c as one file: to out/trainer.tmp
    logs = []
    for name in ("first", "out/trainer", "out/trainer.tmp"):
        start([compiles.directory / name, "--data", "text", "--steps", 3, "--log", "log", "--overwrite"], compiles.directory, 0)
        logs.append(re.findall(r'"(?:loss|grad_norm)": ([^,]*)', (compiles.directory / "log").read_text()))
    assert len(logs[0]) == 6 and logs[0] == logs[1] == logs[2]


@pytest.mark.parametrize("damage", [b"", b"no object"])
def test_damaged_objects_are_compiled_again(compiles, damage):
    _, new, _ = compiles(**QUICK)
    for name in new:
        (compiles.kept / name).write_bytes(damage)
    start([compiles.directory / "out/trainer", "--version"], compiles.directory, 0)
    compiles(**QUICK)
    start([compiles.directory / "out/trainer", "--version"], compiles.directory, 0)


def copy_runtime(folder):
    runtime = folder / "runtime"
    shutil.copytree(ROOT / "runtime", runtime / "include", ignore=shutil.ignore_patterns("*.c"))
    for file in ("libmpcrt.a", "mpi.flags"):
        shutil.copy(MPC.parent / file, runtime)
    return runtime


def compiled_anew(compiles, *words, first={}, **environment):
    """Does another compilation use no object of the first?"""
    compiles(**first)
    _, new, used = compiles(*words, **environment)
    return bool(new) and not used


def test_another_processor_is_another_object(compiles):
    assert compiled_anew(compiles, "--march=x86-64-v2" if os.uname().machine == "x86_64" else "--march=armv8-a")


def test_another_compiler_is_another_object(compiles):
    if not shutil.which("clang"):
        pytest.skip("there is no clang")
    assert compiled_anew(compiles, first=QUICK, CC="clang")


def test_an_updated_compiler_is_another_object(compiles):
    shutil.copy(shutil.which("tcc") or shutil.which("cc"), compiles.directory / "cc")
    here = {"PATH": f"{compiles.directory}:{os.environ['PATH']}"}
    compiles("--march=native", **here)
    os.utime(compiles.directory / "cc", (1, 1))
    _, new, used = compiles("--march=native", **here)
    assert new and not used


def test_another_header_is_another_object(compiles):
    runtime = copy_runtime(compiles.directory)
    compiles(MPC_RUNTIME=str(runtime), **QUICK)
    header = runtime / "include/kernels/element.h"
    header.write_text(header.read_text() + "/* edited */\n")
    _, new, used = compiles(MPC_RUNTIME=str(runtime), **QUICK)
    assert new and not used


@pytest.mark.parametrize("words, environment, reason", [
    ([], {"MPC_CACHE": "no"}, "MPC_CACHE=no"),
    (["--cflags=-g"], {}, "flags of the compiler may depend on other files"),
    ([], {"CC": "cc -pipe"}, "flags of the compiler may depend on other files"),
    ([], {"CC": f"{ROOT}/tests/quick_cc.sh"}, "it is a script"),
    ([], {"MPC_CACHE": "", "XDG_CACHE_HOME": "", "HOME": ""}, "neither MPC_CACHE, XDG_CACHE_HOME nor HOME is set"),
    ([], {"MPC_CACHE": "/dev/null"}, "/dev/null is no folder that you alone can write"),
    ([], {"MPC_CACHE": "/tmp"}, "/tmp is no folder that you alone can write"),
])
def test_no_cache(compiles, words, environment, reason):
    done, new, _ = compiles(*words, "--verbose", **{**QUICK, **environment})
    assert f"no object cache is used: {reason}" in done.stdout.replace("what the compiler depends on is not known: ", "")
    assert not new


def test_place_without_mpc_cache(compiles):
    compiles(MPC_CACHE="", XDG_CACHE_HOME=str(compiles.directory / "a"), **QUICK)
    assert list((compiles.directory / "a/mpc/objects").glob("*.o"))
    compiles(MPC_CACHE="", XDG_CACHE_HOME="", HOME=str(compiles.directory / "b"), **QUICK)
    assert list((compiles.directory / "b/.cache/mpc/objects").glob("*.o"))
    assert (compiles.directory / "b/.cache/mpc/objects").stat().st_mode & 0o777 == 0o700


def test_least_recently_used_objects_are_evicted(compiles):
    compiles.kept.mkdir(mode=0o700)
    for name, used in (("old.o", 1), ("notes", 1), ("newer.o", 2)):
        (compiles.kept / name).touch()
        os.truncate(compiles.kept / name, 300 << 20)  # without blocks
        os.utime(compiles.kept / name, (used, used))
    _, new, _ = compiles(**QUICK)
    assert {path.name for path in compiles.kept.iterdir()} == {"notes", "newer.o"} | new


def test_lines_of_units_are_those_of_the_file(compiles):
    """What a compiler says about a kernel, and about a function, has its line in trainer.c."""
    compiles()
    text = (compiles.directory / "out/trainer.c").read_text().splitlines()
    runtime = copy_runtime(compiles.directory)
    functions = text.index("/* --- Functions --- */")
    names = [re.findall(r"\brt_\w+(?=\()", "\n".join(lines))[-1] for lines in (text[:functions], text[functions:])]
    header = runtime / "include/kernels/kernels.h"
    header.write_text(header.read_text() + f"#pragma GCC poison {' '.join(names)}\n")
    failed = start([MPC, "compile", MODEL, *SMALL, "-o", "out"], compiles.directory, 1, CC="cc", MPC_CACHE="no",
                   MPC_RUNTIME=str(runtime)).stderr
    said = re.findall(r'^trainer\.c:(\d+):\d+: error: attempt to use poisoned "(\w+)"', failed, re.M)
    assert {name for _, name in said} == set(names), failed[:2000]
    assert all(name in text[int(line) - 1] for line, name in said), said
    assert "mpc: error: the C compiler failed: cc -std=gnu17" in failed
