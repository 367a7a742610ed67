"""Compiles the examples at reduced sizes for a mesh, and runs them as processes under mpirun."""
import atexit
import functools
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from cover import some  # noqa: E402, F401 (for tests)

MPC = (ROOT / os.environ.get("BUILD", "build") / "mpc").resolve()

# Small, with each dim of a size of its own where axes allow, and a vocabulary of gpt2 and bert that is padded to 256.
SIZES = {
    "chars": dict(layers=2, embed=32, heads=4, seq=16),
    "gpt2": dict(layers=2, embed=32, heads=4, seq=16, vocab=250),
    "llama": dict(layers=2, embed=32, kv_heads=4, group=2, head=8, ff=64, seq=16, vocab=256),
    "bert": dict(layers=2, embed=32, heads=4, seq=16, vocab=240),
    "mixtral": dict(layers=2, embed=32, kv_heads=4, group=2, head=8, ff=24, seq=16, vocab=256, experts=4, theta=100),
    "deepseek": dict(dense_layers=1, layers=2, embed=32, heads=4, nope=8, turned=4, vhead=8, q_rank=16, kv_rank=12, ff=64,
                     expert_ff=24, experts=8, groups=4, choice=2, limit=2, seq=16, vocab=256, pace=0.05),
}
HEADS = {"chars": "heads, ff, vocab", "gpt2": "heads, ff, vocab", "llama": "kv_heads, ff, vocab",
         "bert": "heads, ff, vocab"}
SETTINGS = {"batch": 8, "microbatch": 8, "precision": "fp32", "optimizer.lr": 1e-3, "schedule.warmup": 2}
EXTRA = os.environ.get("EXTRA_CFLAGS", "")  # sanitizers
QUICK = f"--cflags=-O0 {EXTRA}"  # the kernels are tested elsewhere, as the user's C compiler makes them
TCP = (QUICK, "--comm=tcp")  # starts in a third of the time, and waits without spinning

# Ranks share the cores with others.  In a container processes may not read each other's memory: then OpenMPI complains
# unless it is told to copy twice.
QUIET = {"CC": f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1",
         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
         "ASAN_OPTIONS": "detect_leaks=0"}  # MPI itself leaks


def mpirun(ranks, *command):
    return [*os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none").split(), "-n", ranks, *command]


def free_port():
    """Below those that the kernel hands out, so that no connection has it; processes side by side begin far apart."""
    for port in range(15000 + os.getpid() * 97 % 4000, 20000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def by_hand(ranks, *command):
    """Starts each rank of a trainer that was compiled with --comm=tcp; the status is that of one that fails, if any."""
    script = ('count=$1; shift; for rank in $(seq 0 $((count - 1))); do "$@" --rank $rank & started="$started $!"; done; '
              'for rank in $started; do wait $rank || status=$?; done; exit ${status:-0}')
    return ["sh", "-c", script, "sh", ranks, *command, "--ranks", ranks, "--master", f"127.0.0.1:{free_port()}"]


@functools.cache
def quiet():
    """With OpenMPI's files apart from those of others: runs that start at once get in each other's way.  Paths of sockets are
    short."""
    folder = tempfile.mkdtemp(prefix="ompi")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {**QUIET, "OMPI_MCA_orte_tmpdir_base": folder}


def patience(seconds):
    """So long where the processors are free, longer where others want them too."""
    return seconds * max(1, os.getloadavg()[0] / os.cpu_count())


def start(command, directory, status=0, environment=(), timeout=120):
    """Runs it to its end, which must be `status` (None: any but success)."""
    done = subprocess.run(list(map(str, command)), cwd=directory, capture_output=True, timeout=patience(timeout),
                          env={**os.environ, **quiet(), **dict(environment)})
    done.stdout, done.stderr = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    expected = done.returncode != 0 if status is None else done.returncode == status
    assert expected, f"status {done.returncode}, not {status}: {shlex.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done


def model_text(model, layout):
    """The example with another layout: the lines of its `parallel { }`."""
    text = (ROOT / "examples" / f"{model}.mdl").read_text().split("parallel {")[0]
    return text + "parallel {\n" + "".join(f"    {line}\n" for line in layout) + "}\n"


def options_of(model, sizes, settings):
    said = [f"-D{name}={value}" for name, value in {**SIZES[model], **sizes}.items()]
    for name, value in {**SETTINGS, **settings}.items():
        said += ["--set", f"train.{name}={value}"]
    return said


class Trainer:
    """A compiled model, for how many ranks it is, and what starts them."""

    def __init__(self, folder, ranks, launch=mpirun):
        self.program, self.ranks, self.launch = folder / "out" / "trainer", ranks, launch
        self.source = folder / "model.mdl"

    def command(self, *options):
        return [self.program, *options] if self.ranks == 1 else self.launch(self.ranks, self.program, *options)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """compiled(model, layout, sizes, settings, option, ...): its Trainer, made once a session for the same words.  On one
    rank there is nothing to communicate over."""
    made = {}

    def make(model, layout=(), sizes=(), settings=(), *options, edit=None):
        if options == TCP and ranks_of(layout) == 1:
            options = ()
        key = repr((model, layout, sizes, settings, options, edit))
        if key not in made:
            folder = tmp_path_factory.mktemp(model)
            text = model_text(model, layout)
            (folder / "model.mdl").write_text(re.sub(*edit, text) if edit else text)
            words = options_of(model, dict(sizes), dict(settings))
            start([MPC, "compile", "model.mdl", "-o", "out", *words, *(options or [QUICK])], folder)
            made[key] = Trainer(folder, ranks_of(layout), by_hand if "--comm=tcp" in options else mpirun)
        return made[key]
    return make


def ranks_of(layout):
    """The product of the mesh's sizes."""
    sizes = [int(n) for line in layout if line.startswith("mesh") for n in re.findall(r"= *(\d+)", line)]
    return int(np.prod(sizes)) if sizes else 1


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Bytes for training: letters that follow each other by a rule with exceptions, so that there is something to learn."""
    random = np.random.default_rng(1)
    letters = np.cumsum(random.choice([1, 1, 1, 3, 7], 20000)) % 26 + 97
    path = tmp_path_factory.mktemp("data") / "text"
    letters.astype(np.uint8).tofile(path)
    return path


@pytest.fixture
def train(text, tmp_path):
    """train(trainer, steps, option, ...): its log, a list of dictionaries."""
    def run(trainer, steps, *options, **more):
        start(trainer.command("--data", text, "--data-format", "bytes", "--steps", steps, "--log", "log", "--overwrite", *options),
              tmp_path, **more)
        return read_log(tmp_path / "log")
    return run


def read_log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def layout_of(model, ranks, otherwise="", zero=0, recompute="none", schedule="1f1b", stages=None, chunks=1, options="",
              attend="gather", over=None):
    """The usual layout: ranks = dict of the axes dp, cp, tp, pp, outermost first; zero over dp, if nothing else is said."""
    lines = ["mesh " + ", ".join(f"{axis} = {n}" for axis, n in ranks.items())]
    rule = {"dp": "shard batch over dp", "cp": f"shard seq over cp (attend = {attend})", "tp": f"shard {HEADS[model]} over tp{otherwise}",
            "pp": f"pipeline h over pp, schedule = {schedule}, chunks = {chunks}" + (f", stages = {stages}" if stages else "")}
    lines += [rule[axis] for axis in ranks]
    over = over or ("dp" if "dp" in ranks else None)
    lines += [f"zero {zero} over {over}" + (f" ({options})" if options else "")] if over else []
    return tuple(lines + [f"recompute {recompute}"])


def memory_as_planned(trainer, mesh, log):
    """Each rank has the arena of its stage, to the byte, and what is planned for its messages; what else products have
    beside it is the same on all.  Returns the plan."""
    memory = json.loads((trainer.source.parent / "out" / "plan.json").read_text())["memory"]
    axes = list(mesh)
    inner = math.prod(mesh[axis] for axis in axes[axes.index("pp") + 1:])
    assert [kind["name"] for kind in memory["kinds"]] == [f"pp={stage}" for stage in range(mesh["pp"])]
    kinds = [memory["kinds"][rank // inner % mesh["pp"]] for rank in range(len(log[-1]["rank_bytes"]))]
    beside = {used - kind["arena"] - kind["messages"] for kind, used in zip(kinds, log[-1]["rank_bytes"])}
    assert len(beside) == 1 and 0 <= beside.pop() < 2 ** 18
    assert len(log[-1]["rank_bytes"]) == trainer.ranks and log[-1]["peak_bytes"] == max(log[-1]["rank_bytes"])
    for kind in memory["kinds"]:
        assert sum(kind[part] for part in ("weights", "gradients", "optimizer", "slots", "rest")) == kind["arena"]
    assert memory["arena"] == max(kind["arena"] for kind in memory["kinds"])
    assert memory["messages"] == max(kind["messages"] for kind in memory["kinds"])
    return memory


# --- Failures ------------------------------------------------------------------------------------------------------

def error_of(stderr):
    """The one line that says what is wrong, whatever mpirun adds."""
    errors = [line for line in stderr.splitlines() if "error: " in line]
    assert len(errors) == 1 and errors[0].startswith("error: "), stderr
    return errors[0]


@pytest.fixture
def refused(text, tmp_path):
    """refused(trainer, option, ...): runs what must fail, and returns the one line that says why."""
    def run(trainer, *options, status=1):
        return error_of(start(trainer.command(*options), tmp_path, status).stderr)
    return run


class Running:
    """A run that goes on until it is told otherwise; `processes` are those of its ranks."""

    def __init__(self, trainer, directory, options):
        self.directory = directory
        mesh = ["--print-mesh"] if trainer.ranks > 1 else []
        command = trainer.command("--steps", 10**6, "--print-every", 1, *mesh, *options)
        self.launcher = subprocess.Popen(list(map(str, command)), cwd=directory, env={**os.environ, **quiet()}, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes = self.ranks_of_mesh(trainer.ranks) if mesh else [self.launcher.pid]
        self.await_steps(3)

    def ranks_of_mesh(self, ranks):
        assert self.launcher.stdout.readline().split()[:2] == ["rank", "host"]
        rows = [self.launcher.stdout.readline().split() for _ in range(ranks)]
        return [int(row[3]) for row in rows]

    def await_steps(self, count):
        for _ in range(count):
            assert self.launcher.stdout.readline().startswith("step ")

    def await_file(self, name):
        """A save beside training."""
        while not (self.directory / name).exists():
            self.await_steps(1)

    def signal(self, rank, number):
        os.kill(self.processes[rank], number)

    def end(self, timeout=60):
        """(status, stdout, stderr): whatever ends it, every process must be gone."""
        stdout, stderr = self.launcher.communicate(timeout=patience(timeout))
        deadline = time.monotonic() + 10
        while any(pathlib.Path(f"/proc/{process}").exists() for process in self.processes):
            assert time.monotonic() < deadline, "a rank goes on"
            time.sleep(0.01)
        return self.launcher.returncode, stdout, stderr


@pytest.fixture
def running(text, tmp_path):
    """running(trainer, option, ...): a Running, three steps in."""
    started = []

    def run(trainer, *options):
        started.append(Running(trainer, tmp_path, ["--data", text, "--data-format", "bytes", *options]))
        return started[-1]
    yield run
    for one in started:
        if one.launcher.poll() is None:
            one.launcher.kill()
            one.launcher.communicate()
