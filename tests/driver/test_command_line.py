"""Commands, help, mistakes on the command line, exit statuses; and that each option has an effect."""
import json
import re
import subprocess

import pytest

from conftest import MPC, ROOT, RUNTIME

COMMANDS = ["new", "compile", "run", "check", "report", "plan", "explain", "fmt", "opt", "print", "trace", "import", "export", "plot", "lsp", "help"]


LAYOUT_OPTIONS = {"define", "set", "mesh", "zero", "recompute", "offload", "schedule", "stages", "chunks"}


def options_of(command):
    text = subprocess.run([MPC, "help", command], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (?:-\w, |    )--([\w-]+)", text, re.M)


def test_help_lists_all_commands(mpc):
    text = mpc("--help").stdout
    assert re.findall(r"^  mpc (\w+)", text.split("Example")[0], re.M) == COMMANDS
    assert mpc("help").stdout == text == mpc("-h").stdout
    assert "1 for errors in a file; 2 for mistakes" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(mpc, command):
    text = mpc("help", command).stdout
    assert text == mpc(command, "--help").stdout
    assert text.startswith(f"Usage: mpc {command} ")
    example = text.splitlines()[-1].strip()
    assert example.startswith(f"mpc {command} ")
    for option in re.findall(r"--([\w-]+)", example):
        assert option in options_of(command)
    assert max(map(len, text.splitlines())) <= 100
    assert not re.search(rf"\b({'|'.join(COMMANDS)}): ", text), "the help of an option says what another command does"


def test_version(mpc):
    assert re.fullmatch(r"mpc \d+\.\d+\.\d+\n", mpc("--version").stdout)


def test_no_arguments(mpc):
    assert mpc(status=2).stdout == mpc("--help").stdout


def test_manual_is_as_checked_in(mpc):
    assert mpc("help", "--as=man").stdout == (ROOT / "docs/mpc.1").read_text(), "mpc help --as=man > docs/mpc.1"


MISTAKES = [
    (["chek", "x.mdl"], "no command 'chek': did you mean check?"),
    (["train", "x.mdl"], "no command 'train': did you mean run?"),
    (["bild", "x.mdl"], "no command 'bild': did you mean compile?"),
    (["help", "bild"], "no command 'bild': did you mean compile?"),
    (["tiny.mdl", "--steps", "3"], "no command 'tiny.mdl': did you mean run tiny.mdl?"),
    (["zzzzzz"], "no command 'zzzzzz' ('mpc help' lists them)"),
    (["compile", "--dmp-ir=x", "tiny.mdl"], "unknown option --dmp-ir: did you mean --dump-ir?"),
    (["compile", "--xyzzy", "tiny.mdl"], "unknown option --xyzzy ('mpc help compile' lists"),
    (["compile", "-x", "tiny.mdl"], "unknown option -x"),
    (["report", "--ranks=64", "tiny.mdl"], "--ranks is an option of 'mpc plan', not of 'mpc report': did you mean --mesh dp=N?"),
    (["plan", "--mesh", "dp=8", "tiny.mdl"], "not of 'mpc plan': did you mean --ranks N?"),
    (["run", "--gpus", "2", "tiny.mdl"], "unknown option --gpus: did you mean --mesh dp=N?"),
    (["report", "--dp=8", "tiny.mdl"], "unknown option --dp: did you mean --mesh dp=...?"),
    (["plan", "--tp", "8", "tiny.mdl"], "unknown option --tp: did you mean --keep tp=...?"),
    (["opt", "--no-cc", "x.mir"], "--no-cc is an option of 'mpc compile', not of 'mpc opt'"),
    (["compile", "-o"], "--output needs a value: OUT"),
    (["compile", "-o", "a", "-o", "b", "tiny.mdl"], "--output is given twice"),
    (["compile", "--no-cc=yes", "tiny.mdl"], "--no-cc takes no value"),
    (["compile", "--zero=4", "tiny.mdl"], "--zero must be one of 0|1|2|3, not '4'"),
    (["compile", "--mesh=", "tiny.mdl"], "--mesh needs a value: AXIS=N,..."),
    (["check", "-D", "layers", "tiny.mdl"], "--define needs NAME=VALUE, not 'layers'"),
    (["check", "--set", "=3", "tiny.mdl"], "--set needs KEY=VALUE, not '=3'"),
    (["compile", "--compile-to=fus", "tiny.mdl"], "no pass 'fus': did you mean fuse?"),
    (["compile", "--compile-to=fuse,memory", "tiny.mdl"], "--compile-to takes one pass, not fuse,memory"),
    (["compile", "--remarks=qwertz", "tiny.mdl"], "no pass 'qwertz': the passes are simplify, precision, chunk, autodiff"),
    (["opt", "--pass=lower", "x.mir"], "no pass 'lower'"),
    (["opt", "--pass=", "x.mir"], "no pass ''"),
    (["opt", "x.mir"], "no pass is given: use --pass=PASS,..."),
    (["compile", "tiny.mdl"], "no output folder: give -o OUT"),
    (["compile"], "no file is given: mpc compile FILE.mdl"),
    (["check", "a.mdl", "b.mdl"], "only one FILE.mdl is allowed: leave 'b.mdl' out"),
    (["compile", "tiny.mdl", "-o", "x", "--nvrtc=sm_90"], "--nvrtc=sm_90 has no effect without --target=cuda"),
    (["compile", "tiny.mdl", "-o", "x", "--target=cuda", "--comm=mpi"], "--target=cuda always uses --comm=tcp"),
    (["compile", "tiny.mdl", "--compile-to=fuse", "--comm=tcp"], "--comm and --compile-to: these exclude each other"),
    (["compile", "tiny.mdl", "--compile-to=fuse", "--target=cuda", "--nvrtc=sm_90"], "--nvrtc and --compile-to: these exclude each other"),
    (["compile", "tiny.mdl", "--compile-from=x.mir", "-o", "x"], "leave 'tiny.mdl' out"),
    (["compile", "--compile-from=x.mir", "-D", "a=1", "-o", "x"], "--define and --compile-from: these exclude each other"),
    (["compile", "tiny.mdl", "-o", "x", "--no-cc", "--cflags=-g"], "--no-cc and --cflags: these exclude each other"),
    (["compile", "tiny.mdl", "--compile-to=fuse", "--cc=gcc"], "--compile-to and --cc: these exclude each other"),
    (["compile", "tiny.mdl", "--compile-to=fuse", "-v"], "--compile-to and --verbose: these exclude each other"),
    (["compile", "tiny.mdl", "--compile-to=padding", "--target=cuda"], "--target=cuda has no effect on a program up to 'padding'"),
    (["fmt", "--check", "--write", "tiny.mdl"], "--check and --write: these exclude each other"),
    (["fmt", "--write", "-"], "--write needs a file"),
    (["help", "chek"], "no command 'chek'"),
    (["check", "tiny.mdl", "-D", "layers=1", "--define=layers=2"], "--define layers is given twice"),
    (["check", "tiny.mdl", "--set", "train.batch=1", "--set", "train.batch=2"], "--set train.batch is given twice"),
    (["compile", "tiny.mdl", "-o", "-x"], "--output needs a value: OUT; '-x' looks like an option (if it is not, write --output=-x)"),
    (["help", "check", "--as=man"], "leave 'check' out"),
    (["import", "there"], "-o is missing: mpc import there -o FILE.safetensors"),
    (["import", "there", "--model=tiny.mdl"], "-o is missing: mpc import there"),
    (["import", "there", "--like=x"], "--like is an option of 'mpc export', not of 'mpc import'"),
    (["export", "w.safetensors", "--model=tiny.mdl", "-o", "x"], "--like is missing: mpc export w.safetensors"),
    (["import"], "no file is given: mpc import DIR"),
    (["trace"], "no file is given: mpc trace merge FILE.json..."),
    (["trace", "merge"], "no file is given: mpc trace merge trace.json"),
    (["trace", "join", "a.json"], "there is no 'mpc trace join': mpc trace merge FILE.json..."),
    (["compile", "tiny.mdl", "-o", "-"], "-o -: this cannot be written to standard output: give a name (./- is one)"),
    (["compile", "tiny.mdl", "-o", "a", "--dump-ir", "-"], "--dump-ir -: this cannot be written"),
    (["report", "tiny.mdl", "--html", "-"], "--html -: this cannot be written"),
    (["report", "tiny.mdl", "--costs", "-"], "--costs -: this cannot be written"),
    (["report", "tiny.mdl", "--model-explorer", "-"], "--model-explorer -: this cannot be written"),
    (["lsp", "tiny.mdl"], "it takes no file: the editor names them"),
    (["plot", "a.jsonl", "--tensorboard", "-"], "--tensorboard -: this cannot be written"),
    (["report", "a.mdl", "--memory-svg", "-"], "--memory-svg -: this cannot be written"),
    (["plot", "a.jsonl", "--svg", "-"], "--svg -: this cannot be written"),
    (["import", "there", "--model=tiny.mdl", "-o", "-"], "-o -: this cannot be written"),
    (["export", "w.safetensors", "--model=tiny.mdl", "--like=x", "-o", "-"], "-o -: this cannot be written"),
    (["trace", "trace.json"], "there is no 'mpc trace trace.json': mpc trace merge FILE.json..."),
]


@pytest.mark.parametrize("words, message", MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_mistakes(refused, words, message):
    said = refused(*words)
    assert message in said.splitlines()[0]
    assert len(said.splitlines()) == 1
    assert not (refused.directory / "x").exists()


FAILURES = [
    (["check", "none.mdl"], "cannot read none.mdl: No such file or directory"),
    (["print", "."], "cannot read .: Is a directory"),
    (["compile", "tiny.mdl", "-o", "tiny.mdl/out"], "cannot make the folder tiny.mdl/out: a file has that name"),
    (["compile", "tiny.mdl", "-o", "tiny.mdl"], "cannot make the folder tiny.mdl: a file has that name"),
    (["compile", "tiny.mdl", "--compile-to=fuse", "-o", "tiny.mdl/x.mir"], "cannot write tiny.mdl/x.mir: Not a directory"),
    (["compile", "tiny.mdl", "-o", "out", "--dump-ir=tiny.mdl/x"], "cannot write tiny.mdl/x: File exists"),
    (["compile", "tiny.mdl", "-o", "out", "--cc='gcc"], "--cc: a quote is not closed: 'gcc"),
    (["import", "none", "--model=tiny.mdl", "-o", "x"], "there is no folder none: 'hf download OWNER/NAME --local-dir DIR' fetches one"),
    (["import", "./tiny.mdl", "--model=tiny.mdl", "-o", "x"], "./tiny.mdl is a file: give the folder that it is in, ."),
    (["check", "x.mir"], "x.mir is IR, and this command reads a model: 'mpc print' and 'mpc opt' read IR"),
    (["check", "tiny.mdl", "--set", "train.optimizer.learning_rate=2"], "--set train.optimizer.learning_rate=2: "),
    (["check", "/dev/zero"], "/dev/zero is larger than 268.44 MB"),
    (["compile", "--compile-from=tiny.mdl", "-o", "out"], "tiny.mdl does not name the pass that wrote it"),
    (["compile", "tiny.mdl", "-o", "out", "--cc=no-such-cc"], "cannot run the C compiler 'no-such-cc'"),
    (["compile", "tiny.mdl", "-o", "out", "--cflags=--no-such-flag"], "the C compiler failed: "),
    (["compile", "tiny.mdl", "-o", "out", "--comm=tcp"], "--comm=tcp has no effect on one rank: leave it out, or give a mesh"),
    (["compile", "tiny.mdl", "-o", "out", "--mesh=dp=0"], "--mesh dp=0: "),
    (["compile", "tiny.mdl", "-o", "out", "--mesh=tp=2"], "--mesh tp=2: "),
    (["check", "tiny.mdl", "-D", "layer=2"], "-D layer=2: "),
    (["check", "tiny.mdl", "--set", "train.bath=2"], "--set train.bath=2: "),
]


@pytest.mark.parametrize("words, message", FAILURES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_failures(mpc, words, message):
    done = mpc(*words, status=1)
    assert any(line.startswith("mpc: error: ") and message in line for line in done.stderr.splitlines()), done.stderr
    assert not list(mpc.directory.rglob("*.tmp")) and not list(mpc.directory.rglob("*.??????"))
    assert not (mpc.directory / "out/trainer").exists()


def test_passes_that_do_not_run(mpc):
    mpc("compile", "tiny.mdl", "--compile-to=fuse", "-o", "fused.mir")
    for name in ("layout", "fuse"):
        done = mpc("compile", "--compile-from=fused.mir", f"--compile-to={name}", status=1)
        assert f"--compile-to={name} has no effect: fused.mir was written after 'fuse'" in done.stderr
    said = mpc("compile", "tiny.mdl", "--compile-to=simplify", "--remarks=recompute", "-o", "a.mir").stderr
    assert "tiny: no remarks from recompute" in said


def test_a_dash_is_standard_output(mpc):
    """Never a file of that name."""
    ir = mpc("compile", "tiny.mdl", "--compile-to=fuse", "-o", "fused.mir") and (mpc.directory / "fused.mir").read_text()
    (mpc.directory / "a.jsonl").write_text('{"step": 1, "loss": 2}\n')
    for words in (["compile", "tiny.mdl", "--compile-to=fuse"], ["print", "fused.mir"], ["opt", "fused.mir", "--pass=overlap"],
                  ["plot", "a.jsonl"], ["trace", "merge", "trace.json"]):
        status = 1 if "trace" in words else 0  # there is none
        plain, dash = mpc(*words, status=status), mpc(*words, "-o", "-", status=status)
        assert dash.stdout == plain.stdout and dash.stderr == plain.stderr and (plain.stdout or status), words
    assert mpc("compile", "tiny.mdl", "--compile-to=fuse", "-o", "-").stdout == ir
    mpc("compile", "tiny.mdl", "--compile-to=fuse", "-o", "./-")  # one that was meant
    assert (mpc.directory / "-").read_text() == ir
    (mpc.directory / "-").unlink()
    with open("/dev/full", "w") as full:
        done = subprocess.run([MPC, "print", "fused.mir", "-o", "-"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=mpc.directory)
    assert done.returncode == 1 and "cannot write to standard output: No space left on device" in done.stderr
    assert not (mpc.directory / "-").exists()


def test_full_disk(mpc):
    done = mpc("compile", "tiny.mdl", "--compile-to=fuse", "-o", "/dev/full", status=1)
    assert "cannot write /dev/full: No space left on device" in done.stderr


def test_limit_of_files(mpc):
    done = subprocess.run(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", MPC, "compile", "tiny.mdl", "-o", "limited"], capture_output=True,
                          text=True, cwd=mpc.directory)
    assert done.returncode == 1 and "error: cannot write limited/trainer.c: File too large" in done.stderr
    assert not list(mpc.directory.glob("limited/trainer.c*"))


@pytest.mark.parametrize("words", [["check", "tiny.mdl"], ["help"], ["fmt", "tiny.mdl"], ["check", "--help"]])
def test_full_standard_output(mpc, words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([MPC, *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=mpc.directory)
    assert done.returncode == 1
    assert "cannot write to standard output: No space left on device" in done.stderr


def test_input_is_not_written_over(mpc):
    """Whatever the file is called there; and nothing that is beside it."""
    here = mpc.directory
    (here / "link.mdl").symlink_to("tiny.mdl")
    (here / "hard.mdl").hardlink_to(here / "tiny.mdl")
    (here / "out").mkdir()
    (here / "out/trainer.c").hardlink_to(here / "tiny.mdl")
    (here / "aside.tmp").hardlink_to(here / "tiny.mdl")
    before = (here / "tiny.mdl").read_text()
    for path in ("tiny.mdl", "./tiny.mdl", "link.mdl", "hard.mdl"):
        said = mpc("compile", "tiny.mdl", "--compile-to=lower", "-o", path, status=1).stderr
        assert ": it is the input file" in said
    assert "it is the input file" in mpc("compile", "tiny.mdl", "-o", "out", "--no-cc", status=1).stderr
    mpc("compile", "tiny.mdl", "--compile-to=lower", "--dump-ir=ir", "-o", "x.mir")
    (here / "other").write_text("precious")
    (here / "y.mir.tmp").symlink_to("other")
    (here / "z.mir.tmp").hardlink_to(here / "other")
    for path in ("aside", "y.mir", "z.mir"):
        mpc("compile", "tiny.mdl", "--compile-to=lower", "-o", path)
    assert (here / "other").read_text() == "precious" and (here / "y.mir.tmp").is_symlink()
    words = ["compile", "--compile-from=ir/00-lower.mir", "--compile-to=simplify"]
    assert "ir/00-lower.mir is the input file" in mpc(*words, "--dump-ir=ir", status=1).stderr
    with open(here / "tiny.mdl") as source:
        words = [MPC, "compile", "-", "--compile-to=lower", "-o", "tiny.mdl"]
        assert subprocess.run(words, stdin=source, cwd=here, capture_output=True).returncode == 1
    assert (here / "tiny.mdl").read_text() == before
    mpc("fmt", "--write", "tiny.mdl")


def test_folders_are_made(mpc):
    mpc("compile", "tiny.mdl", "--no-cc", "-o", "a/b/c")
    mpc("compile", "tiny.mdl", "--compile-to=lower", "-o", "d/e/x.mir")
    assert (mpc.directory / "a/b/c/trainer.c").exists() and (mpc.directory / "d/e/x.mir").exists()


def test_words_of_the_c_compiler(mpc):
    """Quoted as for a shell; a folder that looks like an option is one for no compiler."""
    here = mpc.directory
    (here / "my tools").mkdir()
    (here / "my tools/cc").symlink_to("/usr/bin/gcc")
    words = ["compile", "tiny.mdl", "--output=-x", "--cc", "'my tools/cc' -m64", "--cflags", '-O0 -DA=\'"b c"\'', "-v"]
    assert "'my tools/cc' -m64 -std=gnu17" in mpc(*words).stdout
    assert (here / "-x/trainer").exists()


def test_memory_runs_out(mpc):
    words = f"ulimit -v 100000; exec {MPC} check /dev/zero"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, cwd=mpc.directory)
    assert done.returncode == 1 and done.stderr.startswith("mpc: error: out of memory (")


def test_missing_runtime(mpc):
    done = mpc("compile", "tiny.mdl", "-o", "out", status=1, MPC_RUNTIME="/nowhere")
    assert "MPC_RUNTIME=/nowhere: there is no libmpcrt.a and include/rt.h in it" in done.stderr


@pytest.mark.parametrize("words, said", [([], "native"), (["--march=x86-64-v2"], "x86-64-v2")])
def test_a_trainer_names_its_processors(mpc, words, said):
    mpc("compile", "tiny.mdl", "-o", "out", "--cflags=-O0", *words)
    version = subprocess.run([mpc.directory / "out/trainer", "--version"], capture_output=True, text=True).stdout
    assert version == f"tiny, compiled from tiny.mdl by mpc 0.1.0 with --march={said}\n"
    entry = next(entry for entry in json.loads((mpc.directory / "out/plan.json").read_text())["options"] if entry["name"] == "--march")
    assert entry == {"name": "--march", "value": said, "from": "command line" if words else "default"}


def test_a_runtime_without_mpi(mpc, tmp_path):
    """One rank and TCP need none; --comm=mpi says what to do."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "include").symlink_to(RUNTIME)
    (runtime / "libmpcrt.a").symlink_to(MPC.parent / "libmpcrt.a")
    for flags in (None, "\n"):
        if flags:
            (runtime / "mpi.flags").write_text(flags)
        words = ["compile", "tiny.mdl", "-o", "out", "--mesh=dp=2", "--cflags=-O0"]
        said = mpc(*words, status=1, MPC_RUNTIME=str(runtime)).stderr
        assert f"the runtime {runtime}/libmpcrt.a was built without MPI: give --comm=tcp, whose ranks need none, or build" in said
        mpc(*words, "--comm=tcp", MPC_RUNTIME=str(runtime))


def test_a_number_in_the_place_of_a_curve(mpc):
    text = (ROOT / "machines/rtx4090.machine").read_text()
    assert text.count("75 %") == 3 and "920 GB/s" in text
    curves = text.replace("75 %", "1FLOP:75% 1EFLOP:75%").replace("920 GB/s", "1B:920GB/s 1TB:920GB/s")
    (mpc.directory / "curves.machine").write_text(curves)
    number, curve = (mpc("report", "tiny.mdl", "--json", "--machine", name).stdout for name in ("rtx4090", "./curves.machine"))
    assert number.replace("rtx4090", "") == curve.replace("./curves.machine", "")


# --- Each option has an effect: one of these a row of the help ------------------------------------------------

def setting(mpc, name, *words):
    mpc("compile", "tiny.mdl", "-o", "out", "--no-cc", *words)
    plan = json.loads((mpc.directory / "out/plan.json").read_text())
    return next(entry for entry in plan["settings"] if entry["name"] == name)


def reports_registers(mpc):
    """Of a machine without NVRTC: says so."""
    words = ["compile", "tiny.mdl", "-o", "out", "--target=cuda", "--no-cc", "--nvrtc=sm_90"]
    done = subprocess.run([MPC, *words], capture_output=True, text=True, cwd=mpc.directory)
    if done.returncode == 0:
        return re.search(r"kernel_\S+ +\d+ x +\d+ +\d+ +\d+ +0 +0 +\d+ +\d+  tiny.mdl", done.stdout)
    return "cannot find NVRTC" in done.stderr


def links_no_mpi(mpc):
    """And both say which program starts the ranks."""
    words = ["compile", "tiny.mdl", "-o", "out", "--mesh=dp=2", "--cflags=-O0", "-v"]
    said = {comm: mpc(*words, f"--comm={comm}").stdout for comm in ("mpi", "tcp")}
    assert (mpc.directory / "out/trainer.c").read_text().count("    .comm = &rt_tcp,\n") == 1
    assert "next: mpirun -n 2 ./out/trainer " in said["mpi"]
    assert "next: torchrun --no_python --nproc_per_node=2 ./out/trainer " in said["tcp"]
    flags = (MPC.parent / "mpi.flags").read_text()
    return f" {flags}" in said["mpi"] and "-lm -lcrypto\n" in said["tcp"]


def compile_effect(option, mpc):
    def compiled(*words):
        return mpc("compile", "tiny.mdl", *words)

    def from_command_line(name, value, *words):
        entry = setting(mpc, name, *words)
        return entry["value"] == value and entry["from"] == "command line"
    here = mpc.directory
    return {
        "output": lambda: compiled("-o", "there", "--no-cc") and (here / "there/trainer.c").exists(),
        "define": lambda: from_command_line("const.layers", "2", "-Dlayers=2"),
        "set": lambda: from_command_line("train.batch", "8", "--set", "train.batch=8"),
        "mesh": lambda: from_command_line("parallel.mesh.dp", "1", "--mesh=dp=1"),
        "zero": lambda: from_command_line("parallel.zero", "0", "--zero", "0"),
        "recompute": lambda: from_command_line("parallel.recompute", "full", "--recompute=full"),
        "offload": lambda: from_command_line("parallel.offload", "optimizer to disk", "--offload=optimizer to disk"),
        "schedule": lambda: from_command_line("parallel.schedule", "gpipe", "--schedule=gpipe"),
        "stages": lambda: from_command_line("parallel.stages", "2+1", "-Dlayers=3", "--mesh=pp=2", "--stages=2,1"),
        "chunks": lambda: from_command_line("parallel.chunks", "2", "-Dlayers=4", "--mesh=pp=2", "--schedule=naive", "--chunks=2"),
        "target": lambda: compiled("-o", "out", "--target=cuda", "--no-cc") and (here / "out/kernels.cu").exists(),
        "comm": lambda: links_no_mpi(mpc),
        "nvrtc": lambda: reports_registers(mpc),
        "dump-ir": lambda: compiled("--compile-to=simplify", "--dump-ir=ir")
        and {p.name for p in (here / "ir").iterdir()} == {"00-lower.mir", "01-simplify.mir", "01-simplify.diff"},
        "compile-to": lambda: "kernel @" in compiled("--compile-to=fuse").stdout
        and "kernel @" not in compiled("--compile-to=lower").stdout,
        "compile-from": lambda: compiled("--compile-to=fuse", "-o", "fused.mir")
        and mpc("compile", "--compile-from=fused.mir", "-o", "out", "--no-cc") and (here / "out/trainer.c").exists(),
        "verify-passes": lambda: "memory" in compiled("-o", "out", "--no-cc", "--verify-passes").stderr,
        "remarks": lambda: ": remark: recompute: " in compiled("-o", "out", "--no-cc", "--remarks=recompute").stderr,
        "time": lambda: re.search(r"^fuse +\d.* ms", compiled("-o", "out", "--no-cc", "--time").stderr, re.M),
        "no-cc": lambda: compiled("-o", "out", "--no-cc") and not (here / "out/trainer").exists(),
        "cc": lambda: compiled("-o", "out", "--cc=true") is None,
        "cflags": lambda: "-DTRIED -O0" in compiled("-o", "out", "--cflags=-DTRIED -O0", "-v").stdout,
        "march": lambda: " -march=native " in compiled("-o", "out", "--cflags=-O0", "-v").stdout
        and " -march=x86-64-v2 " in compiled("-o", "out", "--cflags=-O0", "-v", "--march=x86-64-v2", "--cc=gcc").stdout,
        "verbose": lambda: re.search(r"train.batch +=", compiled("-o", "out", "--no-cc", "-v").stdout),
    }[option]


@pytest.mark.parametrize("option", options_of("compile"))
def test_compile_option_has_an_effect(mpc, option):
    if option == "cc":  # `true` compiles nothing
        assert "cannot write out/trainer" in mpc("compile", "tiny.mdl", "-o", "out", "--cc=true", status=1).stderr
    else:
        assert compile_effect(option, mpc)()


@pytest.mark.parametrize("option, words, expected", [
    ("define", ["-D", "layers=1"], "68,544 parameters"),
    ("set", ["--set", "train.batch=4"], "a step of 128 tokens"),
    ("mesh", ["--mesh=dp=1"], "ok"),
    ("zero", ["--zero=1"], "ok"),
    ("recompute", ["--recompute=none"], "ok"),
    ("offload", ["--offload=optimizer to disk"], "ok"),
    ("schedule", ["--schedule=1f1b"], "ok"),
    ("stages", ["-Dlayers=3", "--mesh=pp=2", "--stages=1,2"], "ok"),
    ("chunks", ["-Dlayers=4", "--mesh=pp=2", "--schedule=gpipe", "--chunks=2"], "ok"),
    ("target", ["--target=cuda"], "ok"),
    ("verbose", ["-v"], "\n  weight decay:    "),
])
def test_check_option_has_an_effect(mpc, option, words, expected):
    assert option in options_of("check")
    assert expected in mpc("check", "tiny.mdl", *words).stdout


@pytest.mark.parametrize("words", [["--mesh=xx=1"], ["--zero=3"], ["--recompute=half"], ["--offload=optimizer to tape"], ["--schedule=none"], ["--stages=1"], ["--chunks=0"]])
def test_check_looks_at_options(mpc, words):
    assert "error: " in mpc("check", "mixed.mdl", *words, status=1).stderr


def test_check_machine(mpc):
    path = ROOT / "machines" / "h100.machine"  # 81,559 MiB by nvidia-smi, 989.4 TFLOP/s by NVIDIA's data sheet
    assert mpc("check", path).stdout == (f"{path}: ok: H100 SXM5 80 GB, 8 in a DGX H100: 8 ranks on a machine, with 85.52 GB each; "
                                         "products 989.40 TFLOP/s in bf16\n")
    error = mpc("check", "none.machine", status=1).stderr
    assert "cannot read the machine none.machine: No such file or directory" in error and "mpc has a100, gh200, h100, h200" in error
    for words in (["--mesh=dp=2"], ["-D", "layers=3"], ["--verbose"]):
        said = mpc("check", path, *words, status=2).stderr
        assert re.search(r"--(mesh|define|verbose) has no effect on a machine: leave it out", said), said


def test_no_option_is_untested():
    tested = {"new": set(), "compile": None, "run": None, "fmt": {"check", "write"}, "print": {"output", "model-explorer"}, "lsp": LAYOUT_OPTIONS | {"target", "stdio"}, "trace": {"output", "partial"}, "plot": {"output", "smooth", "svg", "title", "tensorboard"}, "help": {"as"},
              "import": {"output", "define", "model", "map"}, "export": {"output", "define", "model", "map", "like", "adapter", "ema", "overwrite"},  # tests/hf
              "check": LAYOUT_OPTIONS | {"target", "verbose"}, "report": LAYOUT_OPTIONS | {"json", "target", "html", "svg", "memory-svg", "gpu-flops", "link", "memory", "no-remedies",
              "machine", "costs", "actions", "model-explorer"}, "explain": LAYOUT_OPTIONS,  # tests/report
              "plan": {"ranks", "memory", "keep", "top", "elastic", "exhaustive", "refine", "define", "set", "offload", "target", "json", "html", "machine",
                       "write"},  # tests/plan
              "opt": {"output", "pass", "dump-ir", "verify-passes", "remarks", "time",
                      "target"}}  # in test_ir.py, test_fmt.py, tests/lsp, test_trace.py, test_plot.py, tests/pass
    for command in COMMANDS:
        assert tested[command] is None or set(options_of(command)) == tested[command]


def test_most_tensors(mpc, tmp_path):
    """As many as there may be; one more is an error (tests/error/tensors_many.mdl)."""
    model = (ROOT / "tests/error/tensors_many.mdl").read_text().replace("repeat 1000 { repeat 1000 { repeat 1000 { repeat 1000 ",
                                                                        "repeat 255 { repeat 257 { repeat 256 { repeat 1 ")
    (tmp_path / "many.mdl").write_text(model)
    assert "parameters in 16,776,961 tensors" in mpc("check", "many.mdl").stdout


# --- What the file does not say --------------------------------------------------------------------------------

BARE = """
dim batch
dim seq = 4
dim vocab = 8
dim embed = 6
model bare {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte : [vocab, embed] = normal(0.02)
    loss mean(cross_entropy(dot(wte[vocab = tokens], wte, embed), labels, vocab))
}
"""
NOTE = "mpc: note: bare.mdl sets no batch: a step trains on {}; write 'train {{ batch = 64 }}', or give --set train.batch=64\n"


@pytest.mark.parametrize("train, words, said", [
    ("", [], "1 sequence, with adamw at lr = 0.001"),
    ("", ["--mesh=dp=4"], "4 sequences, with adamw at lr = 0.001"),
    ("train {\n    clip = 1.0\n}\n", [], "1 sequence, with adamw at lr = 0.001"),
    ("train {\n    optimizer = adamw(lr = 0.1)\n}\n", [], "1 sequence"),
    ("", ["--set", "train.optimizer.lr=0.1"], "1 sequence"),
    ("", ["--set", "train.batch=1"], None),
    ("train {\n    batch = 1\n}\n", [], None),
    ("train {\n    microbatch = 2\n}\n", [], None),
])
def test_a_batch_that_is_not_set_is_told(mpc, train, words, said):
    (mpc.directory / "bare.mdl").write_text(BARE + train)
    for command in (["check"], ["compile", "-o", "out", "--no-cc"]):
        assert mpc(*command, "bare.mdl", *words).stderr == (NOTE.format(said) if said else "")
    mpc("compile", "bare.mdl", "--compile-to=fuse", "-o", "bare.mir", *words)
    assert mpc("compile", "--compile-from=bare.mir", "-o", "out", "--no-cc").stderr == ""  # IR says all


LAYOUTS = [  # the layout of the file, options, the layout that means the same
    ("", "--mesh=dp=2", "mesh dp = 2\n    shard batch over dp"),
    ("", "--mesh=dp=2 --zero=2", "mesh dp = 2\n    shard batch over dp\n    zero 2 over dp"),
    ("mesh tp = 2\n    shard vocab over tp", "--mesh=dp=2", "mesh dp = 2, tp = 2\n    shard batch over dp\n    shard vocab over tp"),
    ("mesh tp = 1\n    shard vocab over tp", "--mesh=tp=2,dp=2 --zero=1",
     "mesh dp = 2, tp = 2\n    shard batch over dp\n    shard vocab over tp\n    zero 1 over dp"),
]


@pytest.mark.parametrize("layout, words, same", LAYOUTS, ids=[words for _, words, _ in LAYOUTS])
def test_data_parallelism_needs_no_layout(mpc, layout, words, same):
    """--mesh dp=N of a file that says nothing about dp splits the batch: the program is that of the file that says so."""
    programs = []
    for text, options in ((layout, words.split()), (same, [])):
        (mpc.directory / "bare.mdl").write_text(BARE + ("parallel {\n    " + text + "\n}\n" if text else ""))
        mpc("compile", "bare.mdl", "--compile-to=memory", "-o", "program.mir", *options)
        programs.append((mpc.directory / "program.mir").read_text())
    assert programs[0] == programs[1] and ("all_reduce" in programs[0] or "reduce_scatter" in programs[0])


@pytest.mark.parametrize("layout, words, said", [
    ("", ["--mesh=tp=2"], "the mesh of the file has no axis 'tp'"),
    ("shard vocab over dp", ["--mesh=dp=2"], "the mesh of the file has no axis 'dp'"),
    ("", ["--mesh=dp=1", "--zero=1"], "no axis splits the batch over several ranks"),
    ("mesh tp = 2\n    shard vocab over tp", ["--zero=1"], "no axis splits the batch over several ranks"),
])
def test_a_mesh_without_a_meaning(mpc, layout, words, said):
    (mpc.directory / "bare.mdl").write_text(BARE + ("parallel {\n    " + layout + "\n}\n" if layout else ""))
    assert said in mpc("check", "bare.mdl", *words, status=1).stderr


def test_settings_have_units(mpc):
    (mpc.directory / "bare.mdl").write_text(BARE)
    said = mpc("compile", "bare.mdl", "-o", "out", "--no-cc", "-v").stdout
    assert re.search(r"train.batch +  = 1 sequence  ", said) and "= 0 steps" in said


@pytest.mark.parametrize("name", ["chars", "llama", "gpt2", "mixtral", "t5", "vit", "lstm"])
def test_remedy_for_a_model_without_layout(mpc, name):
    """What the message says to write for an axis that the model does not have compiles."""
    bare = re.sub(r"^parallel \{.*?^\}\n", "", (ROOT / f"examples/{name}.mdl").read_text(), flags=re.S | re.M)
    (mpc.directory / "bare.mdl").write_text(bare)
    said = mpc("check", "bare.mdl", "--mesh", "tp=2", status=1).stderr
    mesh, split = re.search(r"write '(mesh tp = 1)' and what it splits, as '(shard .* over tp)'", said).groups()
    assert "batch" not in split
    (mpc.directory / "bare.mdl").write_text(f"{bare}parallel {{\n    {mesh}\n    {split}\n}}\n")
    assert "all_reduce" in mpc("report", "bare.mdl", "--mesh", "tp=2").stdout
