"""Messages of tensor parallelism in pieces (`else seq (overlap = N)`), as `mpc report --machine` predicts them.

    python3 bench/pieces.py                 the table of bench/results/2026-11-30-pieces.md
    python3 bench/pieces.py --small         the same layouts of a model with few layers

Nothing is measured: steps are simulated with the laws and figures of the machine (docs/report.md).
"""
import re

import exposed

COUNTS = (1, 2, 4, 8)
LAYOUTS = [row for row in exposed.LAYOUTS if "tp=8" in row[3]]
# With the sequences of a micro-batch on a data-parallel rank: of several, pieces are some of the sequences.
ROWS = [(LAYOUTS[0], 1), (LAYOUTS[0], 2), (LAYOUTS[0], 4), *((row, 1) for row in LAYOUTS[1:])]


def data_ranks(mesh):
    return int(re.search(r"dp=(\d+)", mesh)[1])


def main():
    options = exposed.parser_of(__doc__).parse_args()
    print("| model | mesh | micro-batch | pieces | s/step | messages take, s | not hidden, s | products, s | kernels, s | GB |")
    print("| --- | --- | ---: | ---: |" + 6 * " ---: |")
    for (name, example, sizes, mesh, zero, batch), sequences in ROWS:
        sizes = dict(sizes, layers=16 if "pp" in mesh else 2) if options.small else sizes
        for count in COUNTS:
            edit = (("over tp else seq", f"over tp else seq (overlap = {count})"),)
            said = exposed.report(example, sizes, mesh, zero, batch, "default", options.machine, edit,
                                  (f"train.microbatch={sequences}",))
            seconds, taken, waited, memory = exposed.row_of(said)
            parts = said["time"]["parts"]
            print(f"| {name} | {mesh} | {sequences} | {count} | {seconds:.3f} | {taken:.3f} | {waited:.3f} | {parts['products']:.3f} | "
                  f"{parts['kernels']:.3f} | {memory:.1f} |", flush=True)


if __name__ == "__main__":
    main()
