"""Micro-batches beside each other (`train.abreast`), as `mpc report --machine` predicts them.

    python3 bench/abreast.py                the table of bench/results/2026-11-30-abreast.md
    python3 bench/abreast.py --small        the same layouts of models with few layers

Nothing is measured: steps are simulated with the laws and figures of the machine (docs/report.md).
"""
import exposed

DEEP = dict(dense_layers=1, layers=15)  # DeepSeek's sizes, a quarter of its layers
# Name, example, sizes, mesh, stage of zero, sequences in a step, edits of the file; one sequence a micro-batch on a data-parallel rank.
ROWS = [("Llama 8B", "llama", exposed.B8, "dp=1,tp=8", 1, 8, ()),
        ("Llama 8B, 2 pieces", "llama", exposed.B8, "dp=1,tp=8", 1, 8, (("over tp else seq", "over tp else seq (overlap = 2)"),)),
        ("Llama 8B", "llama", exposed.B8, "dp=8,tp=8", 1, 256, ()),
        ("Llama 8B", "llama", exposed.B8, "dp=64", 3, 256, ()),
        ("Mixtral 8x7B", "mixtral", {}, "dp=8,ep=8", 1, 256, ()),
        ("DeepSeek-V3, 16 layers", "deepseek", DEEP, "dp=1,ep=64", 1, 256, ()),
        ("Llama 70B", "llama", exposed.B70, "dp=2,pp=8,tp=8", 1, 256, ()),
        ("DeepSeek-V3", "deepseek", {}, "dp=1,pp=16,ep=64", 1, 4096, ())]
COUNTS = (1, 2, 4)


def main():
    options = exposed.parser_of(__doc__).parse_args()
    print("| model | mesh | zero | sequences | abreast | s/step | messages take, s | not hidden, s | of these ep or tp | GB |")
    print("| --- | --- | ---: | ---: | ---: |" + 5 * " ---: |")
    for name, example, sizes, mesh, zero, batch, edits in ROWS:
        sizes = dict(sizes, layers=16 if "pp" in mesh else 2) if options.small else sizes
        for count in COUNTS:
            said = exposed.report(example, sizes, mesh, zero, batch, "default", options.machine, edits,
                                  ("train.microbatch=1", f"train.abreast={count}"))
            seconds, taken, waited, memory = exposed.row_of(said)
            inner = sum(row["exposed"] for row in said["time"]["axes"] if row["axes"] in ("ep", "tp"))
            print(f"| {name} | {mesh} | {zero} | {batch} | {count} | {seconds:.3f} | {taken:.3f} | {waited:.3f} | {inner:.3f} | {memory:.1f} |",
                  flush=True)


if __name__ == "__main__":
    main()
