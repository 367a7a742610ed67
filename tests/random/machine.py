"""What stands between a program's text and its numbers: folders, compilers, trainers and their ranks as processes."""
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parser import files_of

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"CC": os.environ.get("CC") or f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "1",
         "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
         "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
         "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0", "MPC_PEAK_FLOPS": "1e9"}
COMPILE_SECONDS, RUN_SECONDS, WAIT_SECONDS = 120, 60, 20  # WAIT: of ranks for each other
MEAN = "optimizer.ema."  # of a parameter, in a checkpoint


def patience():
    """How much longer everything takes where others want the processors."""
    return max(1, os.getloadavg()[0] / os.cpu_count())


@dataclass
class Done:
    status: int  # below 0: a signal; None: it took too long
    output: str


def run(command, directory, environment=(), seconds=RUN_SECONDS):
    """Runs a command to its end; when time is over, which is longer where others want the processors, all that it has
    started ends."""
    seconds *= patience()
    process = subprocess.Popen([str(word) for word in command], cwd=directory, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                               env={**os.environ, **QUIET, **dict(environment)})
    try:
        output = process.communicate(timeout=seconds)[0]
        return Done(process.returncode, output.decode("utf-8", "replace"))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Done(None, process.communicate()[0].decode("utf-8", "replace"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Tools:
    """The compiler under test, and what was built once for all programs in the folder `shared`."""

    def __init__(self, mpc, shared):
        self.mpc, self.shared = Path(mpc).resolve(), Path(shared)
        self.build = self.mpc.parent
        self.source = self.build.parent
        self.sanitized = self.build / "sanitize"
        self.device = self.build / "device"
        self.has_device = self.has_sanitized = False
        self.shared.mkdir(parents=True, exist_ok=True)

    def prepare_sanitized(self):
        """The compiler and the runtime under sanitizers, and where a trainer finds the latter."""
        built = subprocess.run(["sh", ROOT / "tests/sanitized.sh", "mpc", "runtime"], check=True, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "BUILD": str(self.build), "SOURCE": str(self.source)})
        self.has_sanitized = True
        runtime = self.shared / "runtime"
        runtime.mkdir(exist_ok=True)
        (runtime / "link.flags").write_text(built.stdout.strip())
        for name, target in (("include", self.source / "runtime"), ("libmpcrt.a", self.sanitized / "by-gcc/libmpcrt.a"),
                             ("mpi.flags", self.sanitized / "by-gcc/mpi.flags")):
            (runtime / name).unlink(missing_ok=True)
            (runtime / name).symlink_to(target)

    def sanitizers(self):
        """The flags with which the runtime is linked: from a file, since the processes of fuzz.py have tools of their own."""
        return (self.shared / "runtime/link.flags").read_text()

    def prepare_device(self):
        """The emulated GPU."""
        subprocess.run(["sh", "tests/device/build.sh"], cwd=self.source, check=True,
                       env={**os.environ, "BUILD": str(self.build)})
        self.has_device = True


@dataclass
class How:
    """How a program is compiled and run, apart from what its text says."""
    options: tuple = ()      # of mpc compile, and those of mpc check among them
    target: str = "c"
    comm: str = "tcp"        # of several ranks
    sanitize: bool = False
    optimize: bool = False   # compiled as for a user, which takes longer
    threads: int = 1         # of each rank
    own_weights: bool = False  # the trainer initialises them; else they are loaded
    nccl_memory: bool = False  # of several ranks on GPUs
    memory: float = None     # recompute auto: the budget, between the least (0) and the most (1) memory of the policies

    def words(self, ranks):
        """The options as one would type them."""
        if self.target != "c":
            return [*self.options, f"--target={self.target}"]
        return [*self.options, f"--comm={self.comm}"] if ranks > 1 and self.comm != "mpi" else list(self.options)


class Workplace:
    """A folder in which one program after the other is compiled and run."""

    def __init__(self, tools, folder):
        self.tools, self.folder = tools, Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, text, start=None):
        (self.folder / "m.mdl").write_text(text)
        self.is_fed, self.has_outputs = "\n    input " in text, "\n    output " in text
        for name, table in files_of(text).items():
            (self.folder / name).write_text(table)
        if start is not None:
            self.data = self.written(start.data, "")
            self.evaluation = self.written(start.evaluation, "eval.")
            self.prompt = " ".join(map(str, start.prompt))
            write_safetensors(self.folder / "start.safetensors", start.weights)

    def written(self, data, prefix):
        """One file of tokens; or of records one for each input, or one for all.  What names them to a trainer."""
        if not isinstance(data, dict):
            data.astype("<u2").tofile(self.folder / f"{prefix}tokens.u16")
            return [f"{prefix}tokens.u16"]
        if len(data) % 2:
            for name, array in data.items():
                np.save(self.folder / f"{prefix}{name}.npy", array)
            return [f"{name}={prefix}{name}.npy" for name in data]
        write_safetensors(self.folder / f"{prefix}records.safetensors", data)
        return [f"{prefix}records.safetensors"]

    def with_budget(self, how):
        """With the option for `recompute auto`, if `memory` requests it."""
        if how.memory is None:
            return how
        offload = [word for word in how.options if word.startswith("--offload=")]
        reports = [run([self.compiler(how), "report", "m.mdl", "--json", f"--recompute={policy}", f"--target={how.target}", *offload],
                       self.folder, seconds=COMPILE_SECONDS) for policy in ("none", "selective", "full")]
        if any(done.status for done in reports):
            return how  # the compiler reports the reason
        sizes = [json.loads(done.output)["memory"]["arena"] for done in reports]
        budget = min(sizes) + int(how.memory * (max(sizes) - min(sizes)))
        return replace(how, options=(*how.options, f"--recompute=auto({budget})"))

    def check(self, how):
        """mpc check, with those of the options that it knows."""
        said = [word for word in how.options if not word.startswith("--verify-passes")]
        return run([self.compiler(how), "check", "m.mdl", f"--target={how.target}", *said], self.folder, seconds=COMPILE_SECONDS)

    def compiler(self, how):
        return self.tools.sanitized / "mpc" if how.sanitize else self.tools.mpc

    def compile(self, how, ranks, out="out", with_cc=True):
        shutil.rmtree(self.folder / out, ignore_errors=True)
        flags = {"c": "" if how.optimize else "-O0", "cuda": "-O0 -rdynamic"}[how.target]
        environment = {"OMP_NUM_THREADS": str(how.threads)}
        if how.target == "cuda":
            environment["CUDA_HOME"] = str(self.tools.device)
        if how.sanitize:
            flags += f" -g {self.tools.sanitizers()}"
            environment["MPC_RUNTIME"] = str(self.tools.shared / "runtime")
        command = [self.compiler(how), "compile", "m.mdl", "-o", out, *how.words(ranks)]
        command += ["--cflags", flags] if with_cc else ["--no-cc"]
        return run(command, self.folder, environment.items(), COMPILE_SECONDS)

    def never_awaited(self, out="out"):
        """What trainer.c starts in the background and never waits for: a text each."""
        text = (self.folder / out / "trainer.c").read_text()

        def numbers(functions):
            return set(re.findall(rf"\brt_(?:{functions})\(rt, (\d+)", text))
        return [f"{what} {number}" for what, starts, waits in (("collective", "collective_start", "collective_wait"),
                                                               ("transfer", "offload_start|fetch_start", "transfer_wait"))
                for number in sorted(numbers(starts) - numbers(waits))]

    def train(self, how, ranks, steps, load="start.safetensors", out="out"):
        """Runs all ranks; the log is in `log`, the checkpoint in `end.safetensors`."""
        for name in ("log", "end.safetensors"):
            (self.folder / name).unlink(missing_ok=True)
        said = [*(word for name in self.data for word in ("--data", name)), "--no-shuffle", "--steps", steps, "--log", "log", "--save", "end.safetensors"]
        said += ["--load", load] if load else []
        shutil.rmtree(self.folder / "outputs", ignore_errors=True)
        said += ["--outputs", "outputs"] if self.has_outputs else []
        said += ["--sample", 1, "--temperature", 0, "--prompt", self.prompt] if self.prompt else []
        said += [word for name in self.evaluation for word in ("--eval-data", name)] if self.is_fed else []
        environment = {"OMP_NUM_THREADS": str(how.threads)}
        if how.target == "cuda":
            said += ["--kernel-cache", self.tools.shared / "kernels"] + ["--nccl-memory"] * (how.nccl_memory and ranks > 1)
            messages = self.folder / "messages"
            shutil.rmtree(messages, ignore_errors=True)
            messages.mkdir()
            environment |= {"CUDA_HOME": str(self.tools.device), "EMULATED_GPUS": str(ranks),
                           "EMULATED_MESSAGES": str(messages), "KERNEL_CXX": "g++ -O0"}
        trainer = [f"./{out}/trainer", *said]
        seconds = RUN_SECONDS * (4 if how.target == "cuda" or how.sanitize else 1)  # kernels are compiled first; accesses checked
        for _ in range(3):  # another process may take the port before the first rank does
            done = run(self.launched(trainer, how, ranks), self.folder, environment.items(), seconds)
            if ": Address already in use; rank 0 " not in done.output:
                break
        return done

    def launched(self, trainer, how, ranks):
        if ranks == 1:
            return trainer
        wait = ["--timeout", int(WAIT_SECONDS * (4 if how.target == "cuda" else 1) * patience())]
        if how.comm == "mpi" and how.target == "c":
            return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, *trainer, *wait]
        words = " ".join(f"'{word}'" for word in [*trainer, *wait])
        script = (f"for rank in $(seq 0 {ranks - 1}); do {words} --rank $rank --ranks {ranks} "
                  f"--master 127.0.0.1:{free_port()} & jobs=\"$jobs $!\"; done\n"
                  "status=0; for job in $jobs; do wait $job || status=$?; done; exit $status")
        return ["sh", "-c", script]

    def log(self):
        path = self.folder / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def outputs(self):
        return {path.stem: np.load(path) for path in (self.folder / "outputs").glob("*")}

    def sampled(self, done):
        """The token behind the prompt, or None."""
        said = re.search(rf"^{self.prompt} (\d+)$", done.output, re.M)
        return int(said[1]) if self.prompt and said else None

    def saved(self):
        """The parameters of the checkpoint, and their means."""
        tensors = read_safetensors(self.folder / "end.safetensors")
        return {name: value for name, value in tensors.items() if not name.startswith("optimizer.") or name.startswith(MEAN)}


# --- Checkpoints -----------------------------------------------------------------------------------------------------

NAMES = {"float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL", "uint8": "U8", "int16": "I16", "int32": "I32",
         "int64": "I64"}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": NAMES[str(value.dtype)], "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def read_safetensors(path):
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "I32": np.int32}
    return {name: np.frombuffer(raw, types[entry["dtype"]], math.prod(entry["shape"]), 8 + size + entry["data_offsets"][0])
            .reshape(entry["shape"]) for name, entry in header.items()}
