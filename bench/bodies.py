"""Several layers in the body of a repeat, as `mpc report --machine` predicts them: how much messages at the borders of
iterations cost, over which none is under way.

    python3 bench/bodies.py                 the table of bench/results/2026-11-30-bodies.md
    python3 bench/bodies.py --small         the same layouts of a model with few layers

Nothing is measured: steps are simulated with the laws and figures of the machine (docs/report.md).
"""
import exposed

REPEAT = "repeat layers { x = layer(x) as h }"
WITHOUT_STAGES = (("    pipeline h over pp\n", ""), ("pp = 1, ", ""))
# Mesh, stage of zero, sequences in a step, micro-batches abreast; one sequence a micro-batch on a data-parallel rank.
ROWS = [("dp=1,tp=8", 1, 8, 1), ("dp=1,tp=8", 1, 8, 2), ("dp=1,tp=8", 1, 8, 4), ("dp=64", 3, 256, 1), ("dp=64", 3, 256, 2)]
COUNTS = (1, 2, 4)


def body_of(count):
    """The edit of the model that has so many layers in the body."""
    layers = "".join(f"        x = layer(x) as h{number}\n" for number in range(count))
    return (REPEAT, f"repeat layers {{\n{layers}    }}")


def main():
    options = exposed.parser_of(__doc__).parse_args()
    print("| model | mesh | zero | sequences | abreast | layers a body | s/step | not hidden, s | GB |")
    print("| --- | --- | ---: | ---: | ---: |" + 4 * " ---: |")
    for mesh, zero, batch, abreast in ROWS:
        for count in COUNTS:
            sizes = dict(exposed.B8, layers=(4 if options.small else 32) // count)
            said = exposed.report("llama", sizes, mesh, zero, batch, "default", options.machine, (*WITHOUT_STAGES, body_of(count)),
                                  ("train.microbatch=1", f"train.abreast={abreast}"))
            seconds, _, waited, memory = exposed.row_of(said)
            print(f"| Llama 8B | {mesh} | {zero} | {batch} | {abreast} | {count} | {seconds:.3f} | {waited:.3f} | {memory:.1f} |", flush=True)


if __name__ == "__main__":
    main()
