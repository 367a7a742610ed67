#!/usr/bin/env python3
"""mpc on a GPU machine: what the folder of this file contains (`make gpu-bundle`) is run and compared.  Needs NVIDIA's driver,
CUDA 13's libraries (in $CUDA_HOME, /usr/local/cuda*, known to the loader, or packages of this python3), and nothing else.

    python3 run.py check [WORDS]  losses beside a processor's, the same bits again and without a graph, two ranks on the GPU,
                                  kernels beside the interpreter, compute-sanitizer if there is one; with WORDS those with
                                  these words in their names
    python3 run.py probe          what cuBLASLt makes of products, by padding and epilogue
    python3 run.py bench [WORDS]  tokens/s, utilisation, and where a step goes, of models with these words in their names
    python3 run.py peers [WORDS]  the same beside PyTorch, if this python3 has one that sees the GPU

Each prints a table and writes all that was said to out/NAME.log.  --limit SECONDS (570) ends it in time.
"""
import argparse
import concurrent.futures
import glob
import json
import lzma
import os
import pathlib
import shlex
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "out"
EMULATED = json.loads((HERE / "bundle.json").read_text())["emulated"]  # the folder of the emulated device, or None
NEEDED = {"libnvrtc.so.13": "check, bench, peers", "libcublasLt.so.13": "all", "libnccl.so.2": "two ranks",
          "libcudnn.so.9": "attention by cuDNN"}
# Commands are groups of processes, which can be ended together: a shell of two trainers, bench/gpu.py with what it runs.
GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
U = 2.0**-8  # the largest relative error of one rounding to bf16
# Of (loss, gradient norm), by the trainer's precision and its reference's: as tests/device/test_one_rank.py derives them; where
# only one of the two rounds to bf16, twice that.
TOLERANCE = {("fp32", "fp32"): (1e-5, 1e-5), ("bf16", "bf16"): (3 * U / 16, 3 * U), ("fp16", "fp16"): (3 * U / 128, 3 * U / 8),
             ("bf16", "fp32"): (6 * U / 16, 6 * U), ("fp8", "fp8"): (3 * U / 8, 6 * U)}


class Machine:
    """Runs commands with CUDA's libraries, until the time is over; keeps what they say."""

    def __init__(self, name, limit):
        self.end = time.monotonic() + limit
        OUT.mkdir(exist_ok=True)
        self.log = open(OUT / f"{name}.log", "w")
        self.lock = threading.Lock()
        self.scratch = pathlib.Path(tempfile.mkdtemp())
        self.cache = self.scratch / "kernels" if EMULATED else OUT / "kernel-cache"
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache)}
        folders = [HERE / "lib"]
        if EMULATED:
            self.environment["CUDA_HOME"] = EMULATED
        else:
            folders += libraries(self)
        self.environment["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":")

    def left(self):
        return self.end - time.monotonic()

    def say(self, text):
        with self.lock:
            print(text, flush=True)
            print(text, file=self.log, flush=True)

    def note(self, text):
        """In the log only."""
        with self.lock:
            print(text, file=self.log, flush=True)

    def run(self, command, folder=HERE, timeout=100, environment=()):
        """(status, output); 124: too late, 127: cannot be run."""
        command = [str(word) for word in command]
        try:
            process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                       env={**self.environment, **dict(environment)}, **GROUP)
            try:
                text = process.communicate(timeout=max(1, min(timeout, self.left())))[0]
                status = process.returncode
            except subprocess.TimeoutExpired:
                status, text = 124, end(process) + "\nerror: it takes too long"
        except OSError as error:
            status, text = 127, f"error: {error}"
        self.note(f"\n$ {shlex.join(command)}\n{text}\nstatus {status}")
        return status, text


def end(process):
    """With all that it has started; what it has said.  One that hangs in the driver is left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate(timeout=10)[0]
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return ""


def libraries(machine):
    """The folders where CUDA's libraries may be; says where each is."""
    packages = [f"{path}/nvidia/*/lib" for path in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}]
    patterns = [os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/lib64", "/usr/local/cuda-13*/lib64", *packages]
    folders = [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]
    known = subprocess.run(["sh", "-c", "PATH=$PATH:/sbin:/usr/sbin ldconfig -p"], capture_output=True, text=True).stdout
    for name, purpose in NEEDED.items():
        at = next((f"{folder}/{name}" for folder in folders if os.path.exists(f"{folder}/{name}")), None)
        machine.say(f"{name}: {at or ('known to the loader' if name in known else f'not found; needed for: {purpose}')}")
    return folders


def reason(text):
    """The last error, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    return ([line for line in lines if "error" in line.lower()] or lines)[-1][:200]


# --- check ------------------------------------------------------------------------------------------------------------------


def train(machine, folder, case, *options):
    """(what went wrong, or None; the log's lines)."""
    scratch = machine.scratch / f"{folder.name}{len(os.listdir(machine.scratch))}"
    scratch.mkdir()
    command = [folder / "trainer", "--kernel-cache", machine.cache, "--data", HERE / case["data"], "--data-format", case["format"],
               "--steps", case["steps"], "--log", "log", *options]
    environment = {}
    if case["ranks"] > 1:  # on one GPU, over sockets
        ranks, port = case["ranks"], 20000 + os.getpid() % 20000
        environment = {"EMULATED_GPUS": str(ranks), "EMULATED_MESSAGES": str(scratch), "NCCL_DEBUG": "WARN"}
        one = shlex.join(map(str, [*command, "--ranks", ranks, "--master", f"127.0.0.1:{port}", "--timeout", 60, "--share-gpu"]))
        command = ["sh", "-c", " & ".join(f"{one} --rank {rank}" for rank in range(ranks)) + "; status=$?; wait; exit $status"]
    status, text = machine.run(command, scratch, environment=environment.items())
    log = scratch / "log"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return reason(text) if status or len(lines) != case["steps"] else None, lines


def worst_of(lines, expected, case):
    """The largest error, as a share of its tolerance.  Wide models have ten times as many roundings."""
    more = 10 if case["is_wide"] and case["precision"] == "fp32" else 1
    return max(abs(line[key] - other[key]) / abs(other[key]) / (tolerance * more) if isinstance(line[key], (int, float)) else float("inf")
               for line, other in zip(lines, expected)
               for key, tolerance in zip(("loss", "grad_norm"), TOLERANCE[case["precision"], case["reference"]]))


def check_trainer(machine, folder):
    case = json.loads((folder / "case.json").read_text())
    expected = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    wrong, lines = train(machine, folder, case)
    worst = None if wrong else worst_of(lines, expected, case)
    yield folder.name, wrong is None and worst <= 1, wrong or f"largest error {worst:.2f} of the tolerance"
    if wrong is None and case["ranks"] > 1 and case["precision"] == "bf16":
        wrong, other = train(machine, folder, case, "--nccl-memory")
        worst = None if wrong else worst_of(other, expected, case)
        yield (f"{folder.name}, in NCCL's memory", wrong is None and worst <= 1,
               wrong or f"largest error {worst:.2f} of the tolerance")
    if wrong is None and case["ranks"] == 1 and case["precision"] == "bf16":
        for what, options in (("again", ()), ("without a graph", ("--no-graph",))):
            wrong, other = train(machine, folder, case, *options)
            same = [(a["loss"], a["grad_norm"]) for a in lines] == [(b["loss"], b["grad_norm"]) for b in other]
            yield f"{folder.name}, {what}", wrong is None and same, wrong or ("the same bits" if same else "other bits")
        for what, options in (("cuDNN", ("--no-cudnn",)), ("cuDNN and the kernels for Hopper", ("--no-cudnn", "--no-hopper"))):
            wrong, other = train(machine, folder, case, *options)
            worst = None if wrong else worst_of(other, expected, case)
            yield (f"{folder.name}, without {what}", wrong is None and worst <= 1,
                   wrong or f"largest error {worst:.2f} of the tolerance")
    if wrong is None and case["precision"] == "fp8":  # the log has the times of both, product by product
        wrong, other = train(machine, folder, case, "--no-fp8")
        worst = None if wrong else worst_of(other, expected, case)
        differ = [line["loss"] for line in other] != [line["loss"] for line in lines]
        yield (f"{folder.name}, in 16 bits", wrong is None and worst <= 1,
               wrong or f"largest error {worst:.2f} of the tolerance; 8 bits {'were' if differ else 'were not'} used")


def check_kernels(machine, program):
    status, text = machine.run(["./execute_gpu", program.name], HERE / "kernels")
    yield f"kernels of {program.name}", status == 0, reason(text)


def check_sanitizer(machine):
    tool = machine.run(["sh", "-c", "PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer"])[1].strip()
    for name in ("memcheck", "racecheck") if tool else ():
        status, text = machine.run([tool, "--tool", name, "--error-exitcode", 9, HERE / "check/gpt2-bf16/trainer", "--kernel-cache",
                                    machine.cache, "--data", HERE / "bytes", "--data-format", "bytes", "--steps", 2, "--no-graph"])
        yield f"compute-sanitizer {name}", status == 0, reason(text)


def is_alone(folder):
    """Ranks that share the GPU may have to wait for each other, and of products in 8 bits the log says how fast they are."""
    case = json.loads((folder / "case.json").read_text())
    return case["ranks"] > 1 or case["precision"] == "fp8"


class Tally:
    def __init__(self, machine):
        self.machine, self.results = machine, []  # (name, whether it is right)

    def add(self, name, good, text):
        """Says it at once: a run may be cut."""
        self.machine.say(f"{'ok  ' if good else 'FAIL'} {name}: {text}")
        self.results.append((name, good))

    def take(self, name, part):
        if self.machine.left() < 20:
            self.results.append((f"{name}: no time", False))
            return
        try:
            for result in part:
                self.add(*result)
        except Exception as error:  # a log without its end, for instance: the others are checked all the same
            self.add(name, False, f"{type(error).__name__}: {error}")

    def take_all(self, parts, workers):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda part: self.take(*part), parts))

    def end(self):
        """Says how many were right; true if not all are."""
        failed = sorted(name for name, good in self.results if not good)
        self.machine.say(f"{len(self.results) - len(failed)} passed, {len(failed)} failed" + (f": {'; '.join(failed)}" if failed else ""))
        return bool(failed) or not self.results


def check(machine, options):
    """Several at a time, since most of it is the compilation of kernels; then those that need the GPU for themselves."""
    folders = sorted((folder for folder in (HERE / "check").iterdir() if options.words in folder.name),
                     key=lambda folder: ("wide" in folder.name, folder.name))
    together, alone = ([(folder.name, check_trainer(machine, folder)) for folder in folders if is_alone(folder) == needs_all]
                       for needs_all in (False, True))
    kernels = [(program.name, check_kernels(machine, program)) for program in sorted((HERE / "kernels").glob("*.mir")) if options.words in program.name]
    workers = 1 if EMULATED else max(1, min(4, (os.cpu_count() or 1) // 4))
    tally = Tally(machine)
    tally.take_all(together, workers)
    tally.take_all([] if EMULATED else kernels, 2 * workers)
    tally.take_all([*alone, *([] if options.words else [("compute-sanitizer", check_sanitizer(machine))])], 1)
    return tally.end()


# --- probe, bench, peers ----------------------------------------------------------------------------------------------------


def probe(machine, options):
    status, text = machine.run([HERE / "probe"], timeout=options.limit)
    machine.say(text)
    return status


def measure(machine, *words):
    """bench/gpu.py with the trainers that are here: as they come, since a run may be cut."""
    command = [sys.executable, HERE / "gpu.py", "--trainers", HERE / "bench", *words]
    began = time.time()
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**machine.environment, "PYTHONUNBUFFERED": "1"}, **GROUP) as process:
        timer = threading.Timer(machine.left(), os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        for line in process.stdout:
            machine.say(line.rstrip("\n"))
        timer.cancel()
    for report in (HERE / "bench").glob("*-gpu-*.md"):  # where the steps go, of all rows that were measured
        if report.stat().st_mtime > began:
            machine.note(f"\n{report.name}\n\n{report.read_text()}")
    return process.returncode != 0


def bench(machine, options):
    return measure(machine, "--alone", "--only", options.words)


def peers(machine, options):
    return measure(machine, "--only", options.words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "probe", "bench", "peers"])
    parser.add_argument("words", nargs="?", default="")
    parser.add_argument("--limit", type=float, default=570)
    options = parser.parse_args()
    machine = Machine(options.command, options.limit)
    for packed in HERE.glob("*/*/trainer.xz"):
        if not packed.with_suffix("").exists():
            packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
    for file in [HERE / "probe", HERE / "kernels/execute_gpu", *HERE.glob("*/*/trainer")]:  # a copy may have lost it
        if file.exists():
            file.chmod(0o755)
    if not EMULATED:
        machine.say(machine.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit,memory.used", "--format=csv,noheader"], timeout=30)[1].strip())
    return {"check": check, "probe": probe, "bench": bench, "peers": peers}[options.command](machine, options)


if __name__ == "__main__":
    sys.exit(int(main()))
