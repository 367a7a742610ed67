"""Steps across a slow link, predicted and measured: two or four machines, which are network namespaces, a rank on each.

    python3 bench/links.py                                    two machines, three rates, over TCP and MPI (as root; iproute2)
    python3 bench/links.py --machines 4 --comm tcp

For each rate the machines are measured (--probe), then all layouts trained in turn; predictions are those of `mpc report --machine`
with the measured file, and the last row of a rate is the layout that `mpc plan` chooses with it.  One thread a rank.  The table is
Markdown.  What else runs on this machine makes steps longer, not predictions.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/ranks"))
from network import Network  # noqa: E402

MPC = ROOT / os.environ.get("BUILD", "build") / "mpc"
SIZES = dict(layers=2, embed=256, heads=4, seq=128, vocab=1024)  # 1.9 million parameters
SIZED = [*(f"-D{name}={value}" for name, value in SIZES.items()), "--set=train.batch=8", "--set=train.precision=fp32"]
LAYOUTS = {  # by machines: the micro-batch, and the layout
    2: {"dp=2": (4, "--mesh=dp=2", "--zero=0"), "dp=2, zero 3": (4, "--mesh=dp=2", "--zero=3"), "tp=2": (8, "--mesh=tp=2"),
        "pp=2": (1, "--mesh=pp=2")},
    4: {"dp=4": (2, "--mesh=dp=4", "--zero=0"), "dp=4, zero 3": (2, "--mesh=dp=4", "--zero=3"), "tp=4": (8, "--mesh=tp=4"),
        "pp=2, dp=2": (1, "--mesh=pp=2,dp=2", "--zero=0"), "tp=2, dp=2": (4, "--mesh=tp=2,dp=2", "--zero=0")},
}
QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "MPC_PEAK_FLOPS": "1e9", "OMPI_ALLOW_RUN_AS_ROOT": "1",
         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*command, **how):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=QUIET, **how)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def words(machines, layout):
    """What trainers and reports are compiled with."""
    micro, *options = LAYOUTS[machines][layout]
    return [*SIZED, f"--set=train.microbatch={micro}", *options]


class Trial:
    """A program, and its ranks on the machines."""

    def __init__(self, net, comm, folder, model, options):
        self.net, self.comm, self.folder, self.model, self.options = net, comm, folder, model, options
        run(MPC, "compile", model, *options, f"--comm={comm}", "-o", folder)

    def start(self, *options):
        trainer, ranks = self.folder / "trainer", len(self.net.names)
        if self.comm == "mpi":
            run(*self.net.mpirun(trainer, *map(str, options)))
            return
        words = [*map(str, options), "--ranks", str(ranks), "--master", f"{self.net.address(0)}:29500"]
        started = [subprocess.Popen(list(map(str, self.net.within(rank, trainer, "--rank", rank, *words))), env=QUIET, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(ranks)]
        said = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            sys.exit("\n".join(said))

    def step(self, data, steps):
        """The median of its seconds, without the first step."""
        log = self.folder / "log"
        self.start("--data", data, "--data-format", "bytes", "--steps", steps, "--log", log, "--overwrite")
        return statistics.median(json.loads(line)["step_ms"] / 1e3 for line in log.read_text().splitlines()[1:])

    def predicted(self, machine):
        return json.loads(run(MPC, "report", self.model, *self.options, "--machine", machine, "--json"))["time"]["seconds"]


def planned(folder, machine, machines):
    """(name, model, options) of the layout that mpc plan chooses."""
    model = folder / "planned.mdl"
    model.write_text((ROOT / "examples/gpt2.mdl").read_text())
    said = run(MPC, "plan", model, *SIZED, "--ranks", machines, "--machine", machine, "--top", 1, "--write", "--json")
    best = json.loads(said)["best"][0]
    mesh = ", ".join(f"{axis}={size}" for axis, size in best["mesh"].items() if size > 1)
    zero = f", zero {best.get('zero')}" if best.get("zero") else ""
    return f"planned: {mesh}{zero}", model, [*SIZED, f"--set=train.microbatch={best['microbatch']}"]


def measure(net, comm, folder, data, options):
    """Of each layout, the planned one last: (measured, predicted) seconds of a step."""
    gpt2 = ROOT / "examples/gpt2.mdl"
    trials = {name: Trial(net, comm, folder / f"{number}", gpt2, words(options.machines, name))
              for number, name in enumerate(LAYOUTS[options.machines])}
    machine = folder / "probed.machine"
    next(iter(trials.values())).start("--probe", machine, "--probe-seconds", options.seconds, "--overwrite")
    name, *of_plan = planned(folder, machine, options.machines)
    trials[name] = Trial(net, comm, folder / "planned", *of_plan)
    turns = [{name: trial.step(data, options.steps) for name, trial in trials.items()} for _ in range(options.turns)]
    return {name: (statistics.median(turn[name] for turn in turns), trial.predicted(machine)) for name, trial in trials.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=2, choices=list(LAYOUTS))
    parser.add_argument("--rate", action="append", help="of each link, as tc has it (default: 50mbit, 100mbit and 200mbit)")
    parser.add_argument("--comm", action="append", choices=("tcp", "mpi"), help="(default: both)")
    parser.add_argument("--seconds", type=float, default=12, help="of a probe")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    print("| link | over | layout | measured ms | predicted ms | error |\n| --- | --- | --- | ---: | ---: | ---: |", flush=True)
    errors, chosen = [], []
    with tempfile.TemporaryDirectory() as made:
        data = pathlib.Path(made) / "data"
        data.write_bytes(bytes(random.Random(1).choices(range(240), k=200_000)))
        for rate in options.rate or ("50mbit", "100mbit", "200mbit"):
            for comm in options.comm or ("tcp", "mpi"):
                folder = pathlib.Path(made) / f"{rate}-{comm}"
                folder.mkdir()
                net = Network(folder, options.machines, rate)
                try:
                    found = measure(net, comm, folder, data, options)
                finally:
                    net.close()
                for name, (measured, predicted) in found.items():
                    errors.append(predicted / measured - 1)
                    print(f"| {rate} | {comm} | {name} | {1e3 * measured:.1f} | {1e3 * predicted:.1f} | {100 * errors[-1]:+.1f} % |", flush=True)
                chosen.append(list(found.values())[-1][0] / min(measured for measured, _ in found.values()))
    within = sum(abs(error) <= 0.1 for error in errors)
    print(f"\n{within} of {len(errors)} rows within 10 %, median error {100 * statistics.median(map(abs, errors)):.1f} %; the planned layout is "
          f"the fastest in {sum(ratio == 1 for ratio in chosen)} of {len(chosen)} cases, else up to {100 * (max(chosen) - 1):.1f} % slower")


if __name__ == "__main__":
    main()
