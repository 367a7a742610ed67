"""Steps across a slow link, predicted and measured: two or four machines, which are network namespaces, a rank on each.

    python3 bench/links.py                                    two machines, three rates, over TCP and MPI (as root; iproute2)
    python3 bench/links.py --machines 4 --comm tcp

For each rate the machines are measured (--probe), then all layouts trained in turn; predictions are those of `mpc report --machine`
with the measured file, and the last row of a rate is the layout that `mpc plan` chooses with it.  One thread a rank.  The table is
Markdown.  What else runs on this machine makes steps longer, not predictions.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from trial import MPC, ROOT, Linked, Trial, run, write_data

SIZES = dict(layers=2, embed=512, heads=8, seq=256, vocab=1024)  # 7 million parameters: actions take tens of milliseconds
SIZED = [*(f"-D{name}={value}" for name, value in SIZES.items()), "--set=train.batch=8", "--set=train.precision=fp32"]
LAYOUTS = {  # by machines: the micro-batch, and the layout
    2: {"dp=2": (4, "--mesh=dp=2", "--zero=0"), "dp=2, zero 3": (4, "--mesh=dp=2", "--zero=3"), "tp=2": (8, "--mesh=tp=2"),
        "pp=2": (1, "--mesh=pp=2")},
    4: {"dp=4": (2, "--mesh=dp=4", "--zero=0"), "dp=4, zero 3": (2, "--mesh=dp=4", "--zero=3"), "tp=4": (8, "--mesh=tp=4"),
        "pp=2, dp=2": (1, "--mesh=pp=2,dp=2", "--zero=0"), "tp=2, dp=2": (4, "--mesh=tp=2,dp=2", "--zero=0")},
}


def words(machines, layout):
    """What trainers and reports are compiled with."""
    micro, *options = LAYOUTS[machines][layout]
    return [*SIZED, f"--set=train.microbatch={micro}", *options]


def planned(folder, machine, machines):
    """The name of the layout that mpc plan chooses, and what its trainer is compiled with."""
    model = folder / "planned.mdl"
    model.write_text((ROOT / "examples/gpt2.mdl").read_text())
    said = run(MPC, "plan", model, *SIZED, "--ranks", machines, "--machine", machine, "--top", 1, "--write", "--json")
    best = json.loads(said)["best"][0]
    mesh = ", ".join(f"{axis}={size}" for axis, size in best["mesh"].items() if size > 1)
    zero = f", zero {best.get('zero')}" if best.get("zero") else ""
    return f"planned: {mesh}{zero}", model, *SIZED, f"--set=train.microbatch={best['microbatch']}"


def measure(place, comm, folder, data, options):
    """Of each layout, the planned one last: (measured, predicted) seconds of a step."""
    gpt2 = ROOT / "examples/gpt2.mdl"
    trials = {name: Trial(place, comm, options.machines, folder / f"{number}", gpt2, *words(options.machines, name))
              for number, name in enumerate(LAYOUTS[options.machines]) if name in (options.layout or [name])}
    machine = folder / "probed.machine"
    next(iter(trials.values())).probe(machine, options.seconds)
    name, *of_plan = planned(folder, machine, options.machines)
    trials[name] = Trial(place, comm, options.machines, folder / "planned", *of_plan)
    for trial in trials.values():
        if trial.refused:
            sys.exit(trial.refused)
    turns = [{name: trial.step(data, options.steps) for name, trial in trials.items()} for _ in range(options.turns)]
    return {name: (statistics.median(turn[name] for turn in turns), trial.predicted(machine)) for name, trial in trials.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=2, choices=list(LAYOUTS))
    parser.add_argument("--rate", action="append", help="of each link, as tc has it (default: 200mbit, 400mbit and 800mbit)")
    parser.add_argument("--comm", action="append", choices=("tcp", "mpi"), help="(default: both)")
    parser.add_argument("--layout", action="append", help="one of the table, beside the planned one (several times: these)")
    parser.add_argument("--seconds", type=float, default=24, help="of a probe")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    print("| link | over | layout | measured ms | predicted ms | error |\n| --- | --- | --- | ---: | ---: | ---: |", flush=True)
    errors, chosen = [], []
    with tempfile.TemporaryDirectory() as made:
        data = write_data(made)
        for rate in options.rate or ("200mbit", "400mbit", "800mbit"):
            for comm in options.comm or ("tcp", "mpi"):
                folder = pathlib.Path(made) / f"{rate}-{comm}"
                folder.mkdir()
                with Linked(options.machines, rate) as place:
                    found = measure(place, comm, folder, data, options)
                for name, (measured, predicted) in found.items():
                    errors.append(predicted / measured - 1)
                    print(f"| {rate} | {comm} | {name} | {1e3 * measured:.1f} | {1e3 * predicted:.1f} | {100 * errors[-1]:+.1f} % |", flush=True)
                chosen.append(list(found.values())[-1][0] / min(measured for measured, _ in found.values()))
    within = sum(abs(error) <= 0.1 for error in errors)
    print(f"\n{within} of {len(errors)} rows within 10 %, median error {100 * statistics.median(map(abs, errors)):.1f} %; the planned layout is "
          f"the fastest in {sum(ratio == 1 for ratio in chosen)} of {len(chosen)} cases, else up to {100 * (max(chosen) - 1):.1f} % slower")


if __name__ == "__main__":
    main()
