"""score.py FOLDER MUTANTS -- injects faults into pipeline schedules and into trainers that run them; each must be detected.

FOLDER has what run.sh has built: `certificate`, which injects all faults into the events and slots of schedules that mpc
makes, and asks the proof of them; and trainer.o, with which a trainer does one thing wrong, so that it must compute other
numbers than one process.  Of each kind of fault a trainer has MUTANTS; the first faults are all tried.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
MPC = (ROOT / os.environ.get("BUILD", "build") / "mpc").resolve()
MODEL = ROOT / "tests" / "report" / "pipe.mdl"  # of 4 micro-batches
EARLY = "F0.0,F0.1,F0.2,F0.3,B0.0,B0.1,B0.2,B0.3\nF1.0,B1.0,F1.1,B1.1,F1.2,B1.2,F1.3,B1.3\n"  # activations arrive early
TRAINERS = [(3, "1f1b", 1), (3, "zb", 1), (2, "./early.csv", 1), (2, "interleaved", 2), (2, "zb", 2)]  # ranks, schedule, chunks
WRAPPED = ["rt_pipeline", "rt_slot", "rt_send_start", "rt_receive_start", "rt_message_wait"]
KINDS = {"slots": "a slot of a ring too few", "leave": "a message is sent from the next slot",
         "arrive": "a message arrives in the next slot", "action": "an action of the next micro-batch",
         "arrival": "an action does not wait for what it reads"}
STEPS, TOLERANCE = 3, 1e-5  # as tests/ranks/test_layouts.py has it


def start(command, folder, **environment):
    return subprocess.Popen([str(word) for word in command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1", **environment})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Trainer:
    """A compiled pipeline, in which one fault after the other is planted; of one rank: nothing but the model."""

    def __init__(self, folder, ranks, schedule=None, chunks=1):
        self.folder, self.ranks = folder / f"{ranks}-{pathlib.Path(schedule or 'alone').stem}-{chunks}", ranks
        self.name = f"{schedule} on {ranks} ranks of {chunks} stages"
        self.folder.mkdir(exist_ok=True)
        (self.folder / "early.csv").write_text(EARLY)
        (self.folder / "text").write_bytes(bytes(number * number % 11 for number in range(9999)))
        said = [f"--mesh=pp={ranks}", f"--schedule={schedule}", f"--chunks={chunks}", "--comm=tcp"] if schedule else []
        wraps = " ".join(f"-Wl,--wrap={name}" for name in WRAPPED) + f" {folder.resolve()}/trainer.o" if schedule else ""
        self.end([start([MPC, "compile", MODEL, "-o", "out", *said, f"--cflags=-O0 {wraps}"], self.folder)])

    def end(self, processes, may_fail=False):
        """What all have printed; None if one has failed."""
        try:
            texts = [process.communicate(timeout=60)[0] for process in processes]
        except subprocess.TimeoutExpired:
            for process in processes:
                process.kill()
            texts = [process.communicate()[0] for process in processes]
        if all(process.returncode == 0 for process in processes):
            return "".join(texts)
        return None if may_fail else sys.exit("".join(texts))

    def run(self, mutant="", may_fail=False):
        """(what it prints, loss and norm of every step); None if it fails."""
        (self.folder / "log").unlink(missing_ok=True)
        train = ["out/trainer", "--data", "text", "--data-format", "bytes", "--steps", STEPS, "--log", "log"]
        join = ["--ranks", self.ranks, "--master", f"127.0.0.1:{free_port()}", "--timeout", 20]
        commands = [[*train, *join, "--rank", rank] for rank in range(self.ranks)] if self.ranks > 1 else [train]
        printed = self.end([start(command, self.folder, MUTANT=mutant) for command in commands], may_fail)
        if printed is None:
            return None
        lines = map(json.loads, (self.folder / "log").read_text().splitlines())
        return printed, [line[key] for line in lines for key in ("loss", "grad_norm")]

    def mutants(self, most):
        """At most so many of each kind, at equal distances."""
        printed, _ = self.run("list")
        for kind in KINDS:
            found = sorted(re.findall(rf"^{kind} \d+ \d+$", printed, re.M))
            yield from [found[number * len(found) // most] for number in range(most)] if len(found) > most else found


def is_same(numbers, expected):
    return all(a is not None and abs(a - b) <= TOLERANCE * abs(b) for a, b in zip(numbers, expected, strict=True))


def in_trainer(folder, how, alone, most):
    """(kind, whether it is detected, the mutant) of each."""
    trainer = Trainer(folder, *how)
    if not is_same(trainer.run()[1], alone):
        sys.exit(f"{trainer.name}: other numbers than one process before anything is planted")
    for mutant in trainer.mutants(most):
        ran = trainer.run(mutant, may_fail=True)
        yield mutant.split()[0], ran is None or not is_same(ran[1], alone), f"{trainer.name}: {mutant}"


def main(folder, most):
    done = subprocess.run([folder / "certificate"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    missed = re.findall(r"^missed: .*", done.stdout, re.M)
    rows = {row[6]: [row[1], int(row[2]), int(row[3]), 0, int(row[4]), int(row[5])]
            for row in re.finditer(r"^(\w)" + r" +(\d+)" * 4 + "  (.*)", done.stdout, re.M)}
    rows |= {what: ["q", 0, 0, 0, 0, 0] for what in KINDS.values()}
    alone = Trainer(folder, 1).run()[1]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda how: list(in_trainer(folder, how, alone, most)), TRAINERS):
            for kind, detected, mutant in found:
                row = rows[KINDS[kind]]
                row[1], row[3], row[4] = row[1] + 1, row[3] + detected, row[4] + (not detected)
                missed += [] if detected else [f"missed: {KINDS[kind]}: {mutant}"]
    print("mutants certificate training nobody none")
    for what, row in rows.items():
        print(f"{row[1]:7} {row[2]:11} {row[3]:8} {row[4]:6} {row[5]:4}  {row[0]}  {what}")
    print("\n".join(missed))
    absent = [what for what, row in rows.items() if not row[1]]
    if absent:
        print("no fault was planted of the kinds: " + "; ".join(absent))
    proved, trained = (sum(row[1] for row in rows.values() if (row[0] == "q") == is_trained) for is_trained in (False, True))
    print(f"{proved} faults in schedules, of which the certificate detects {sum(row[2] for row in rows.values())}; {trained} in trainers, of "
          f"which {sum(row[3] for row in rows.values())} compute other numbers; nobody detects {len(missed)}; "
          f"{sum(row[5] for row in rows.values())} more turned out to be right schedules")
    return 1 if missed or absent else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), int(sys.argv[2])))
