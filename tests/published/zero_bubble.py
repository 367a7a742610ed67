"""Zero Bubble Pipeline Parallelism (arXiv 2401.10241, tables 3, 4, 5 and 9): GPTs of 1.5B to 28.3B on 8 to 32 A100.

zero-bubble-tables.csv      samples a second of a GPU and GB of memory, of 1F1B and of ZB-1p, which is mpc's zb; measured F, B
                            and W, whose bubbles tests/unit/test_schedule.c computes

Megatron-LM with one stage a GPU, without data or tensor parallelism and without recomputation; embedding and head count as
a layer each.  Of 1F1B-I the last chunk has no layer, which mpc does not have.
"""
from reports import HERE, reports, rows, settings, sizes

SCHEDULES = {"1f1b": "1f1b", "zb1p": "zb"}


def words_of(row, schedule):
    stages, copies = int(row["p"]), (int(row["layers"]) + 2) // int(row["p"])
    words = sizes(layers=row["layers"], embed=row["hidden"], heads=row["heads"], seq=row["seq"], vocab=50304)
    words += settings(batch=int(row["m"]) * int(row["mbs"]), microbatch=row["mbs"])
    words += ["--stages=" + ",".join(str(copies - (stage in (0, stages - 1))) for stage in range(stages))]
    return [HERE / "gpt.mdl", *words, f"--mesh=pp={stages}", f"--schedule={SCHEDULES[schedule]}"]


def steps():
    """(row, schedule, published and predicted samples a second of a GPU, published and predicted GB)"""
    table = [(row, schedule) for row in rows("zero-bubble-tables.csv") for schedule in SCHEDULES]
    for (row, schedule), report in zip(table, reports([words_of(*each) for each in table], "a100")):
        time = report["time"]
        speed = int(row["m"]) * int(row["mbs"]) / (int(row["p"]) * time["seconds"])
        yield (row, schedule, float(row[f"sps_gpu_{schedule}"]), speed,
               float(row[f"mem_gb_{schedule}"]), time["memory_bytes"] / 1e9)


def actions():
    """(row, published and predicted milliseconds of F, B and W) of a stage with layers only, of each model once."""
    table = list({row["model"]: row for row in rows("zero-bubble-tables.csv")}.values())
    for row, report in zip(table, reports([words_of(row, "zb1p") for row in table], "a100")):
        stage = report["pipeline"]["stages"][1]
        yield (row, [float(row[action]) for action in ("TF_ms", "TB_ms", "TW_ms")],
               [1e3 * stage[f"{action}_time"] for action in ("forward", "backward", "weight")])


def print_steps():
    for row, schedule, published, speed, memory, needed in steps():
        print(f"{row['model']} {row['p']} stages, {row['m']} micro-batches, {schedule}: {published} samples/s of a GPU, "
              f"predicted {speed:.2f} ({100 * (speed / published - 1):+.1f} %); {memory:.0f} GB, predicted {needed:.1f}")
    for row, published, predicted in actions():
        print(f"{row['model']}: " + ", ".join(f"{name} {ms:.2f} ms, predicted {own:.2f} ({100 * (own / ms - 1):+.0f} %)"
                                              for name, ms, own in zip("FBW", published, predicted)))
