"""Steps that `mpc report --machine` predicts, beside the steps that trainers measure on this machine.

    python3 bench/predict.py                 six models, on one rank and on two, in several layouts
    python3 bench/predict.py --link 1gbit    two ranks in network namespaces of their own, joined by a link of that rate:
                                             as two machines (as root; iproute2)

Each trainer measures the machine itself (--probe) and then trains, in turn, so that both see the same load of others; of all
turns the medians count.  One thread a rank, over TCP.  The table is Markdown; what a layout cannot have is left out.
"""
import argparse
import pathlib
import statistics
import tempfile

from trial import ROOT, Here, Linked, Trial, write_data

# Steps of about a tenth of a second to one on one core, of four sequences.
SMALL = dict(layers=2, seq=256, vocab=4096)
MODELS = {
    "chars": dict(layers=4, embed=256, heads=4, seq=256),
    "gpt2": dict(SMALL, embed=512, heads=8),
    "llama": dict(SMALL, embed=512, kv_heads=4, group=2, head=64, ff=1536),
    "bert": dict(SMALL, embed=512, heads=8),
    "gemma2": dict(SMALL, embed=512, kv_heads=4, group=2, head=64, ff=1024),
    "mixtral": dict(SMALL, embed=256, kv_heads=4, group=2, head=32, ff=512, experts=4),
}
BATCH = 4
LAYOUTS = {"one rank": (), "dp=2": ("--mesh=dp=2",), "zero 3": ("--mesh=dp=2", "--zero=3"), "tp=2": ("--mesh=tp=2",),
           "cp=2": ("--mesh=cp=2",), "pp=2": ("--mesh=pp=2",)}
MICRO = {"dp=2": 2, "zero 3": 2, "pp=2": 1}  # else the batch


def words(model, layout):
    """What both the trainer and the report are compiled with."""
    sizes = [f"-D{name}={value}" for name, value in MODELS[model].items()]
    settings = dict(batch=BATCH, microbatch=MICRO.get(layout, BATCH), precision="fp32")
    return [ROOT / f"examples/{model}.mdl", *sizes, *(f"--set=train.{name}={value}" for name, value in settings.items()),
            *LAYOUTS[layout]]


def measure(place, model, layout, folder, data, options):
    """(measured seconds of a step, predicted ones); None: the model has no such layout."""
    trial = Trial(place, "tcp", 1 if layout == "one rank" else 2, folder, *words(model, layout))
    if trial.refused:
        return None
    measured, predicted = [], []
    for turn in range(options.turns):
        machine = folder / f"{turn}.machine"
        trial.probe(machine, options.seconds)
        measured.append(trial.step(data, options.steps))
        predicted.append(trial.predicted(machine))
    return statistics.median(measured), statistics.median(predicted)


def order(found):
    """Of pairs of layouts of a model whose times differ by 15 % or more: how many, and how many are predicted in order."""
    pairs = right = 0
    for a, (measured, predicted) in found.items():
        for b, (other, other_predicted) in found.items():
            if a < b and max(measured, other) >= 1.15 * min(measured, other):
                pairs += 1
                right += (measured < other) == (predicted < other_predicted)
    return pairs, right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of a probe")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", action="append", choices=list(MODELS), help="this model (several times: these)")
    parser.add_argument("--layout", action="append", choices=list(LAYOUTS), help="this layout (several times: these)")
    parser.add_argument("--link", metavar="RATE", help="of the link between both ranks, as tc has it: 1gbit")
    options = parser.parse_args()
    layouts = [name for name in options.layout or LAYOUTS if not (options.link and name == "one rank")]
    errors, pairs, right = [], 0, 0
    print("| model | layout | measured ms | predicted ms | error |\n| --- | --- | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as made, Linked(2, options.link) if options.link else Here() as place:
        data = write_data(made)
        for model in options.only or MODELS:
            found = {}
            for layout in layouts:
                row = measure(place, model, layout, pathlib.Path(made) / f"{model} {layout}", data, options)
                if row:
                    found[layout] = row
                    errors.append(row[1] / row[0] - 1)
                    print(f"| {model} | {layout} | {1e3 * row[0]:.1f} | {1e3 * row[1]:.1f} | {100 * errors[-1]:+.1f} % |", flush=True)
            of_model = order(found)
            pairs, right = pairs + of_model[0], right + of_model[1]
    print(f"\nmedian error {100 * statistics.median(map(abs, errors)):.1f} % of {len(errors)} rows; "
          f"{right} of {pairs} pairs of layouts whose times differ by 15 % are in the right order")


if __name__ == "__main__":
    main()
