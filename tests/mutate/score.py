"""score.py FOLDER MUTANTS MODELS FIRST -- injects faults into compiled programs; each must be detected by some check.

Prints one row a kind of mistake: mutants, how many the verifier of types, that of memory plans, reals and residues notice,
how many nobody, and how many have turned out to be none.  Each program after autodiff (judged by the one before), after the passes that know
the mesh, and after memory: gpt2, bert and llama with mistakes of each kind, and random programs with a few of any.  Pipelines after the pass
that cuts micro-batches in parts, and after memory.
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "verify"))
import layouts  # noqa: E402
import random_models  # noqa: E402

WIDE = dict(layers=3, seq=4, embed=2, kv_heads=2, group=1, ff=2048)  # messages cross the borders of layers
PROGRAMS = [("gpt2", dict(dp=2, cp=1, tp=2, zero=2, loss=2)), ("bert", dict(dp=2, cp=2, tp=1, zero=1)),
            ("llama", dict(dp=1, cp=2, tp=2, zero=0, loss=4)), ("llama", dict(dp=2, cp=1, tp=2, zero=3, offload=layouts.OFFLOADS[5])),
            ("gpt2", dict(dp=2, cp=1, tp=1, zero=0, offload=layouts.OFFLOADS[6] + " 2")),
            ("llama", dict(dp=2, cp=1, tp=2, zero=1, abreast=2)), ("llama", dict(dp=1, cp=1, tp=2, zero=0, sizes=WIDE))]
PROGRAMS += [("gpt2", dict(pp=2, dp=2, cp=1, tp=1, zero=2, schedule="1f1b", chunks=1, loss=2, offload=layouts.OFFLOADS[1])), ("llama", dict(pp=2, dp=1, cp=1, tp=2, zero=0, schedule="zb", chunks=1, abreast=2)),
             ("bert", dict(pp=2, dp=2, cp=1, tp=1, zero=1, schedule="interleaved", chunks=2)), ("gpt2", dict(pp=2, dp=1, cp=1, tp=1, zero=0, schedule="zb", chunks=2))]
STAGES = [("autodiff", "chunk"), ("padding", None), ("memory", None)]  # and what came before, if that is the judge
STAGES_OF_PIPELINES = [("pipeline", None), ("memory", None)]
IN_RANDOM = 6  # mistakes in each random program, at each stage
KINDS = "abcdefghijklmnrstuv"


def run(command, may_fail=False):
    done = layouts.run(command)
    if done.returncode and not may_fail:
        sys.exit(done.stdout + done.stderr)
    return done


def compile_to(source, said, stage):
    """The IR after a pass; None where the layout is refused."""
    ir = source.with_name(f"{source.stem}-{stage}.mir")
    done = run([layouts.MPC, "compile", source, *said, f"--compile-to={stage}", "-o", ir], may_fail=True)
    if done.returncode and re.search(r"internal|interpreter", done.stderr):
        sys.exit(done.stderr)
    return None if done.returncode else ir


def plant(folder, source, said, how, stages):
    text = ""
    for stage, before in stages:
        files = [compile_to(source, said, name) for name in (stage, before) if name]
        if None in files:
            return ""
        text += run([folder / "mutate", *how, *files]).stdout.replace("missed: ", f"missed: {source.stem} {stage}: ")
    return text


def with_outputs(text):
    """What goes into the layers, what comes out of them, and scores: those of padding, whose logits are 0, would be the largest."""
    early, loss = "    repeat layers { x = layer(x) as h }\n", "    loss "
    assert early in text and loss in text
    return text.replace(early, f"    output early = x\n{early}    output late = x\n").replace(loss, f"    output scores = max(0 - square(logits), vocab)\n{loss}")


def without_key_bias(text):
    """The gradient of a bias of keys is 0, as they shift all logits of a query alike: no mistake in its messages changes anything."""
    return text.replace("k = dot(x, wk, embed) + bk", "k = dot(x, wk, embed)").replace("param bq, bk, bv", "param bq, bv")


def in_example(folder, most, number):
    model, mesh = PROGRAMS[number]
    layout = dict(mesh, otherwise=True, accumulation=4, recompute="selective", precision="fp32", over="dp")
    source = folder / f"{model}-{number}.mdl"
    text = with_outputs(layouts.model_text(model, layout))
    source.write_text(without_key_bias(text) if model == "gpt2" else text)
    is_pipeline = "pp" in mesh
    said = layouts.settings(model, layout, **({"layers": 2 * mesh["pp"]} if is_pipeline else mesh.get("sizes", {})))
    return plant(folder, source, said, ["each", most], STAGES_OF_PIPELINES if is_pipeline else STAGES)


def in_random(folder, number):
    source = folder / f"random-{number}.mdl"
    source.write_text(random_models.model_text(number))
    return plant(folder, source, [], ["any", f"{IN_RANDOM}:{number}"], STAGES)


def main(folder, most, models, first):
    rows, missed, tried = collections.defaultdict(lambda: [0] * 7), [], 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(in_example, folder, most, number) for number in range(len(PROGRAMS))]
        jobs += [pool.submit(in_random, folder, number) for number in range(first, first + models)]
        for text in (job.result() for job in jobs):
            tried += bool(text)
            missed += re.findall(r"^missed: .*", text, re.M)
            for row in re.finditer(r"^(\w)" + r" +(\d+)" * 7 + "  (.*)", text, re.M):
                counts = rows[f"{row[1]}  {row[9]}"]
                rows[f"{row[1]}  {row[9]}"] = [sum(pair) for pair in zip(counts, map(int, row.groups()[1:8]))]
    print("mutants types plan reals residues nobody none")
    for name, counts in sorted(rows.items()):
        print(f"{counts[0]:7} {counts[1]:5} {counts[2]:4} {counts[3]:5} {counts[4]:8} {counts[5]:6} {counts[6]:4}  {name}")
    in_gradients = sum(counts[0] for name, counts in rows.items() if name.startswith("m"))
    total, typed, planned, real, exact, nobody, none = (sum(column) for column in zip(*rows.values()))
    print("\n".join(missed))
    absent = [kind for kind in KINDS if not any(name.startswith(kind) for name in rows)]
    if absent:
        print("no mistake was planted of the kinds " + ", ".join(absent))
    print(f"{total} mistakes planted in {tried} programs: types notice {typed / total:.0%}, the plan of memory "
          f"{planned / total:.0%}, reals {real / total:.0%}, residues {exact / max(1, total - in_gradients):.0%} of those "
          f"that are not in gradients, nobody {nobody}; {none} more turned out to change nothing")
    return 1 if nobody or absent else 0


sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
