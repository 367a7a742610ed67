"""mpc opt and mpc print: IR in, IR out; mpc compile from IR."""
import re
import resource
import shutil
import subprocess

import pytest

from conftest import MPC, ROOT


def renumbered(text):
    """With numbers of values (%12 in IR, v12 in C) in order of appearance: a file of IR begins to count anew."""
    seen = {}
    return re.sub(r"(%|\bv)(\d+)(?!\d)", lambda match: match[1] + str(seen.setdefault(match[2], len(seen))), text)


def emitted(folder):
    """trainer.c without the plan, its lines unwrapped: how long a name is decides where they break."""
    text = renumbered((folder / "trainer.c").read_text().split("static const char plan[]")[0])
    return re.sub(r"\s+", "", text)


def test_a_model_is_no_ir(mpc):
    for words in (["print"], ["opt", "--pass=fuse"]):
        assert "tiny.mdl is a model, and this command reads IR: 'mpc compile tiny.mdl -o OUT --dump-ir=OUT'" in mpc(*words, "tiny.mdl", status=1).stderr


@pytest.mark.parametrize("given, wanted, said", [
    ("lower", "memory", "pass 'memory' comes too early: it needs kernels; run 'fuse' before"),
    ("lower", "layout", "pass 'layout' comes too early: it needs a function with the role 'step'; run 'autodiff' before"),
    ("memory", "precision", "pass 'precision' comes too late: the module already has a memory plan")])
def test_a_pass_out_of_order(mpc, given, wanted, said):
    mpc("compile", "tiny.mdl", f"--compile-to={given}", "-o", "a.mir")
    assert said in mpc("opt", f"--pass={wanted}", "a.mir", status=1).stderr


def test_an_unknown_op(mpc, small):
    text = small.read_text().replace("= dot ", "= dott ", 1)
    (mpc.directory / "wrong.mir").write_text(text)
    said = mpc("print", "wrong.mir", status=1).stderr
    assert "error: no such op" in said and "= help: did you mean 'dot'?" in said


@pytest.fixture
def fused(mpc):
    mpc("compile", "tiny.mdl", "--compile-to=fuse", "-o", "fused.mir")
    return mpc.directory / "fused.mir"


SMALL = ("tiny.mdl", "-D", "embed=16", "-D", "seq=8", "-D", "vocab=32")  # what is interpreted at its own sizes


@pytest.fixture
def lowered(mpc):
    mpc("compile", "tiny.mdl", "--compile-to=lower", "-o", "lowered.mir")
    return mpc.directory / "lowered.mir"


@pytest.fixture
def small(mpc):
    mpc("compile", *SMALL, "--compile-to=lower", "-o", "small.mir")
    return mpc.directory / "small.mir"


def test_print_is_a_fixed_point(mpc, fused):
    once = mpc("print", fused).stdout
    assert once.startswith("module @tiny {\n")
    (mpc.directory / "once.mir").write_text(once)
    assert mpc("print", "once.mir").stdout == once
    assert fused.read_text().split("\n", 1)[1] == once
    mpc("print", "once.mir", "-o", "twice.mir")
    assert (mpc.directory / "twice.mir").read_text() == once


def test_standard_input(mpc, fused):
    done = subprocess.run([MPC, "print", "-"], input=fused.read_text(), capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == mpc("print", fused).stdout


def test_print_reports_errors(mpc, fused):
    fused.write_text(fused.read_text().replace("f32[", "f33[", 1))
    done = mpc("print", fused, status=1)
    assert re.match(r".*fused\.mir:\d+:\d+: error: ", done.stderr)


def test_verifying_changes_nothing(mpc, small):
    """Verification runs the passes too: on a copy, so that what comes out is what comes out without it."""
    mpc("opt", small, "--pass=simplify,precision,autodiff", "-o", "differentiated.mir")
    plain = mpc("opt", "differentiated.mir", "--pass=layout")
    verified = mpc("opt", "differentiated.mir", "--pass=layout", "--verify-passes")
    assert verified.stdout == plain.stdout and "layout     the same in" in verified.stderr
    mpc("compile", *SMALL, "--compile-to=fuse", "-o", "fused.mir")
    done = mpc("compile", "--compile-from=fused.mir", "-o", "out", "--no-cc", "--verify-passes")
    assert done.stderr.startswith("fused.mir is verified at its own sizes")
    assert re.findall(r"(\w+) +the same in", done.stderr) == ["abreast", "offload", "stacks", "join", "ahead", "overlap", "memory"]  # the others have run already


def test_opt_pass_by_pass_is_compile(mpc, lowered, fused):
    mpc("opt", lowered, "--pass=simplify,precision", "-o", "a.mir")
    mpc("opt", "a.mir", "--pass=autodiff,recompute,accumulate,fuse", "-o", "b.mir")
    assert renumbered((mpc.directory / "b.mir").read_text()) == renumbered(mpc("print", fused).stdout)


def test_opt_order_is_the_compilers(mpc, lowered):
    assert mpc("opt", lowered, "--pass=precision,simplify").stdout == mpc("opt", lowered, "--pass=simplify,precision").stdout


def test_opt_dumps(mpc, lowered):
    mpc("opt", lowered, "--pass=simplify", "--dump-ir=deep/ir", "-o", "out.mir")
    names = {path.name for path in (mpc.directory / "deep/ir").iterdir()}
    assert "01-simplify.mir" in names
    assert any(line.startswith("-") for line in (mpc.directory / "deep/ir/01-simplify.diff").read_text().splitlines())


def test_opt_remarks_times_and_verification(mpc, lowered):
    mpc("opt", lowered, "--pass=simplify,autodiff", "-o", "a.mir")
    said = mpc("opt", "a.mir", "--pass=recompute", "--remarks=all", "--time", "-o", "b.mir").stderr
    assert ": remark: recompute: " in said and re.search(r"^recompute +[\d.]+ ms", said, re.M)
    quiet = mpc("opt", "a.mir", "--pass=recompute", "-o", "b.mir").stderr
    assert quiet == ""


def test_opt_verifies(mpc):
    (mpc.directory / "small.mir").write_text("""module @m {
  func eval @eval(%x: f32[n:3]) {
    %1 = neg %x : f32[n:3]
    %2 = neg %1 : f32[n:3]
    %y = sum %2 {over=n} : f32[]
    return %y
  }
}
""")
    done = mpc("opt", "small.mir", "--pass=simplify", "--verify-passes")
    assert "neg" not in done.stdout and "simplify" in done.stderr


def test_opt_verifies_exactly(mpc, small):
    """Modulo a prime; where that has no meaning, reals do and the report says why."""
    done = mpc("opt", small, "--pass=simplify,precision,autodiff", "--verify-passes=exact")
    assert re.findall(r"(\w+) +the same in \d+ tensors, exactly\n", done.stderr) == ["simplify", "precision", "autodiff"]
    (mpc.directory / "cast.mir").write_text("""module @m {
  func eval @eval(%x: f32[n:3]) {
    %1 = cast %x {dtype=i32} : i32[n:3]
    %2 = cast %1 {dtype=f32} : f32[n:3]
    %y = sum %2 {over=n} : f32[]
    return %y
  }
}
""")
    done = mpc("opt", "cast.mir", "--pass=simplify", "--verify-passes=exact")
    assert "not exact, since this cannot be modelled modulo a prime:" in done.stderr
    assert "is not a valid i32" in done.stderr and done.stderr.endswith("the same in 1 tensors\n")
    assert "takes no value but exact, not 'twice'" in mpc("opt", "cast.mir", "--pass=simplify", "--verify-passes=twice",
                                                          status=2).stderr


def test_opt_refuses_a_pass_that_comes_too_late(mpc, fused):
    assert "pass 'autodiff' " in mpc("opt", fused, "--pass=autodiff", status=1).stderr


def test_compile_from_any_dump_is_compile(mpc):
    mpc("compile", "tiny.mdl", "-o", "whole", "--no-cc", "--dump-ir=ir")
    for dump in sorted((mpc.directory / "ir").glob("*.mir")):
        mpc("compile", f"--compile-from={dump}", "-o", "part", "--no-cc")
        assert emitted(mpc.directory / "part") == emitted(mpc.directory / "whole"), dump


SMALL_LLAMA = [f"-D{name}={size}" for name, size in dict(
    layers=2, embed=8, kv_heads=4, group=2, head=2, ff=8, seq=8, vocab=16).items()]


@pytest.mark.parametrize("layout", [["--mesh=dp=2"], ["--mesh=dp=2,tp=2"], ["--mesh=cp=2,tp=2", "--zero=0"],
                                    ["--mesh=dp=2,tp=2", "--zero=3"]], ids=" ".join)
def test_the_program_is_the_same_whether_anybody_looks_or_not(mpc, layout):
    """A dump is what was compiled.  Byte by byte, but for the plan, which has the options."""
    words = ["compile", ROOT / "examples" / "llama.mdl", *SMALL_LLAMA, *layout, "--no-cc"]
    looks = [[], ["--dump-ir=ir"], ["--remarks=all"], ["--verify-passes"]]
    for number, look in enumerate(looks):
        mpc(*words, "-o", f"out{number}", *look)
    texts = {(mpc.directory / f"out{number}/trainer.c").read_text().split("static const char plan[]")[0] for number in range(len(looks))}
    assert len(texts) == 1
    assert " reshard " in (mpc.directory / "ir" / "07-layout.mir").read_text()


def test_a_batch_that_ranks_share_is_verified(mpc):
    """On fewer ranks than declared, with as many micro-batches: here one, of all sequences."""
    chars = ROOT / "examples" / "chars.mdl"
    assert "microbatch" not in chars.read_text()
    done = mpc("compile", chars, "--mesh=dp=4", "--verify-passes", "--no-cc", "-o", "out")
    assert "memory     the same in" in done.stderr


def test_check_is_what_the_report_says(mpc):
    checked, compiled = mpc("check", "tiny.mdl").stdout, mpc("compile", "tiny.mdl", "-o", "out", "--no-cc").stdout
    assert "model tiny, 168,512 parameters in 52 tensors" in checked
    assert "model tiny, 168,512 parameters in 52 tensors" in compiled


@pytest.mark.parametrize("name", ["my model", "a(b)", 'quoted "', "two\nlines", "#c\\d", " "])
def test_any_file_name(mpc, name):
    """Its name stands at every op; the text is read back, and the C in whose comments it stands compiles."""
    shutil.copy(mpc.directory / "tiny.mdl", mpc.directory / f"{name}.mdl")
    mpc("compile", f"{name}.mdl", "-o", "out", "--dump-ir=ir", "--cflags=-O0")
    mpc("compile", f"{name}.mdl", "-o", "cuda", "--target=cuda", "--no-cc")
    text = (mpc.directory / "ir/07-layout.mir").read_text()
    assert mpc("print", "ir/07-layout.mir").stdout == "".join(line for line in text.splitlines(True) if line[0] != "#")
    mpc("compile", "--compile-from=ir/07-layout.mir", "-o", "again", "--no-cc")


def test_a_path_does_not_end_a_comment(mpc):
    folder = mpc.directory / "a*" / "#error in a comment" / "*"
    folder.mkdir(parents=True)
    shutil.copy(mpc.directory / "tiny.mdl", folder / "b*.mdl")
    mpc("compile", folder / "b*.mdl", "-o", "out", "--cflags=-O0")
    text = mpc("compile", folder / "b*.mdl", "--compile-to=memory").stdout
    (mpc.directory / "evil.mir").write_text(re.sub(r"loc\([^)]*\)", 'loc("*/#error/*:1:1")', text))
    mpc("compile", "--compile-from=evil.mir", "-o", "out", "--cflags=-O0")


@pytest.mark.parametrize("stage", ["lower", "autodiff", "memory"])
def test_a_head_that_lacks_a_line(mpc, stage):
    """Of what a trainer needs: told at a place of the text, and no other trainer is made."""
    mpc("compile", "tiny.mdl", f"--compile-to={stage}", "-o", "whole.mir")
    lines = (mpc.directory / "whole.mir").read_text().splitlines(True)
    heads = [i for i, line in enumerate(lines) if re.match(r"  (batch|vocab|train|input|param) ", line)]
    assert len(heads) > 5
    for i in heads:
        (mpc.directory / "less.mir").write_text("".join(lines[:i] + lines[i + 1:]))
        said = mpc("compile", "--compile-from=less.mir", "-o", "out", "--no-cc", status=1).stderr
        assert re.match(r"less.mir:\d+:\d+: error: ", said), lines[i]
        if stage == "lower" and not re.match("  (batch|vocab)", lines[i]):
            said = mpc("opt", "--pass=autodiff", "less.mir", status=1).stderr
            assert "error: " in said and "internal" not in said, lines[i]
    assert not (mpc.directory / "out").exists()


@pytest.mark.parametrize("stage, pattern, instead, said", [
    ("lower", r"(  param %wte .*\n)", r"\1\1", "a parameter of that name is declared above"),
    ("lower", r"(%h\.\S*attn\.wk) \S+", r"\1 h.*.attn.wq", "both have the tensor 'h.0.attn.wq' of a checkpoint"),
    ("lower", r"%wte wte", "%wte wte.*.*.*", "the path 'wte.*.*.*' of %wte has a '*' for each dim of copies, and its type has 2"),
    ("lower", r"(train {)(optimizer=\w+)", r"\1\2, \2", "this is given twice"),
    ("lower", r"{dim=vocab}", "{dim=vocab, dim=vocab}", "this is given twice"),
    ("lower", r"constant {value=\S+} : f32", "constant {dtype=i32, value=0.5} : i32", "0.5 is not an i32"),
    ("lower", r"constant {value=\S+} : f32", "constant {dtype=i32, value=inf} : i32", "inf is not an i32"),
    ("lower", r"constant {value=\S+} : f32", "constant {value=-1e400} : f32", "the number is too large; the largest is inf"),
    ("lower", r"constant {value=\S+} : f32", "constant {dtype=bool, value=2} : bool", "2 is not a bool"),
    ("memory", r" at \d+ strides", " at -1 strides", "expected a whole number that is not negative"),
    ("memory", r" at p\d+ strides", " at p999 strides", "is at pointer p999, and @"),
    ("memory", r" at p\d+ strides", " at p99999999999 strides", "no function has so many pointers"),
    ("memory", r" frame\(\d+", " frame(-64", "expected a whole number that is not negative"),
    ("memory", r"(func step .*?) at \d+ strides", r"\1 at p0 strides", "is at pointer p0, and @step has 0 pointers"),
])
def test_words_that_mean_nothing(mpc, stage, pattern, instead, said):
    """A place of the text, and the reason: no crash, no internal error, and nothing that is passed over."""
    mpc("compile", "tiny.mdl", f"--compile-to={stage}", "-o", "whole.mir")
    text = (mpc.directory / "whole.mir").read_text()
    changed, count = re.subn(pattern, instead, text, count=1)
    assert count == 1
    (mpc.directory / "changed.mir").write_text(changed)
    done = mpc("compile", "--compile-from=changed.mir", "-o", "out", "--no-cc", status=1)
    assert re.match(r"changed.mir:\d+:\d+: error: .*" + re.escape(said), done.stderr)


def test_a_byte_0_does_not_end_a_text(mpc, lowered):
    lowered.write_bytes(lowered.read_bytes() + b"\0 more")
    assert re.match(r".*lowered.mir:\d+:\d+: error: expected the end of the file", mpc("print", lowered, status=1).stderr)
    (mpc.directory / "table.csv").write_bytes(b"F0.0,B0.0\nF1.0,B1.0\n\0F0.1")
    shutil.copy(ROOT / "tests/error/pipeline_table.mdl", mpc.directory / "p.mdl")
    said = mpc("check", "p.mdl", "--schedule=./table.csv", status=1).stderr
    assert "table.csv: it has a byte 0, and is no text" in said


def test_an_axis_twice(mpc):
    (mpc.directory / "mesh.mir").write_text("module @m {\n  mesh dp=2, dp=4\n}\n")
    assert mpc("print", "mesh.mir", status=1).stderr.startswith("mesh.mir:2:14: error: the mesh has this axis already")


def test_offloaded_for_another_device(mpc):
    """IR of a trainer for GPUs, with state on the host, is none of a trainer for processors, whose state goes to disk."""
    mpc("compile", *SMALL, "--target=cuda", "--offload=optimizer to host", "--compile-to=fuse", "-o", "host.mir")
    assert "on host" in mpc("compile", "--compile-from=host.mir", "--target=cuda", "--no-cc", "-o", "out").stdout
    said = mpc("compile", "--compile-from=host.mir", "--no-cc", "-o", "out", status=1).stderr
    assert "host.mir offloads to the host, which a trainer for processors does not" in said


@pytest.mark.parametrize("most, last", [(20_000, "00-lower.mir"), (100_000, "04-autodiff.diff")])
def test_a_dump_that_is_cut_short(mpc, most, last):
    """A disk that is full, or a limit of files, ends the command, and leaves no part of a program."""
    done = subprocess.run([MPC, "compile", "tiny.mdl", "-o", "out", "--no-cc", "--dump-ir=ir"], cwd=mpc.directory,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)), capture_output=True, text=True)
    assert done.returncode == 1 and "File too large" in done.stderr
    dumps = sorted(path.name for path in (mpc.directory / "ir").iterdir())
    assert last not in dumps and all(name <= last.replace("diff", "mir") for name in dumps)
    for name in dumps:
        if name.endswith(".mir"):
            mpc("print", f"ir/{name}", "-o", "/dev/null")
