"""What links.py and predict.py share: trainers whose ranks are here or on machines of their own, their steps, and predicted ones."""
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/ranks"))
from network import Network  # noqa: E402

MPC = ROOT / os.environ.get("BUILD", "build") / "mpc"
QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "MPC_PEAK_FLOPS": "1e9", "OMPI_ALLOW_RUN_AS_ROOT": "1",
         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=QUIET)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_data(folder):
    data = pathlib.Path(folder) / "data"
    data.write_bytes(bytes(random.Random(1).choices(range(240), k=200_000)))
    return data


class Here:
    """All ranks are processes of this machine."""
    address = "127.0.0.1"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def within(self, rank, *command):
        return list(command)


class Linked:
    """Each rank is on a machine of its own; a link of that rate (as tc has it) is between two, more have one to a switch.  Frames are
    as large as those of clusters, since small ones at this rate take a third of the processors."""

    def __init__(self, machines, rate):
        self.machines, self.rate = machines, rate

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.net = Network(pathlib.Path(self.folder.name), self.machines, self.rate, frame=9000)
        self.address, self.within, self.mpirun = self.net.address(0), self.net.within, self.net.mpirun
        return self

    def __exit__(self, *error):
        self.net.close()
        self.folder.cleanup()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Trial:
    """A program that was compiled with `words`, and its ranks on a place.  `refused`: why it cannot be; else empty."""

    def __init__(self, place, comm, ranks, folder, *words):
        self.place, self.comm, self.ranks, self.folder, self.words = place, comm, ranks, folder, list(map(str, words))
        compiled = subprocess.run([MPC, "compile", *self.words, *([f"--comm={comm}"] if ranks > 1 else []), "-o", folder],
                                  capture_output=True, text=True, env=QUIET)
        self.refused = compiled.stderr if compiled.returncode else ""

    def start(self, *options):
        """Runs it on all its ranks, to its end."""
        command = [str(self.folder / "trainer"), *map(str, options)]
        if self.ranks == 1 or self.comm == "mpi":
            run(*(command if self.ranks == 1 else self.place.mpirun(*command)))
            return
        command += ["--ranks", str(self.ranks), "--master", f"{self.place.address}:{free_port()}", "--rank"]
        started = [subprocess.Popen(self.place.within(rank, *command, str(rank)), env=QUIET, text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT) for rank in range(self.ranks)]
        said = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            sys.exit("\n".join(said))

    def probe(self, machine, seconds):
        self.start("--probe", machine, "--probe-seconds", seconds, "--overwrite")

    def step(self, data, steps):
        """The median of its seconds, without the first step."""
        log = self.folder / "log"
        self.start("--data", data, "--data-format", "bytes", "--steps", steps, "--log", log, "--overwrite")
        return statistics.median(json.loads(line)["step_ms"] / 1e3 for line in log.read_text().splitlines()[1:])

    def predicted(self, machine):
        return json.loads(run(MPC, "report", *self.words, "--machine", machine, "--json"))["time"]["seconds"]
