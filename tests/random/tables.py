"""Schedules of a pipeline as tables of actions: drawn, and cut down.  A table belongs to the number of stages and of
micro-batches, which are settled last."""
from printer import tables_of
from reference import Settings
from tree import Mesh, Name, Number, Pipeline, Program

KINDS = "FBW"
DIVIDED = 0.4  # how often B leaves the gradients of weights to W


def micro_batches(program):
    settings = Settings(program)
    microbatch = program.train["microbatch"].value if "microbatch" in program.train else settings.batch
    return max(1, settings.batch // (microbatch * settings.ranks_of_data))


# --- Drawing ---------------------------------------------------------------------------------------------------------

def ranks_of_stages(draw, ranks, chunks):
    """Round and round; two on each rank may be down the ranks and up again."""
    down = list(range(ranks))
    return down + down[::draw.choice([1, -1])] if chunks == 2 else down * chunks


def random_cells(draw, ranks, micros, chunks=1):
    """A random order of all actions of all stages, in which each comes after what it reads: so any order may come of it that
    can be done.  A stage holds a limited number of micro-batches, and prefers some kinds of actions."""
    rank_of = ranks_of_stages(draw, ranks, chunks)
    stages = len(rank_of)
    kinds = KINDS if draw.random() < DIVIDED else KINDS[:2]
    done = {(kind, stage): 0 for kind in kinds for stage in range(stages)}
    most = [draw.choice([1, 2, 3, micros, micros]) for _ in range(stages)]
    liking = {key: draw.choice([0.05, 1, 20]) for key in done}

    def is_ready(kind, stage):
        micro = done[kind, stage]
        if kind == "F":
            return micro - done[kinds[-1], stage] < most[stage] and (stage == 0 or done["F", stage - 1] > micro)
        below = done[KINDS[KINDS.index(kind) - 1], stage] > micro
        return below and (kind == "W" or stage == stages - 1 or done["B", stage + 1] > micro)

    cells = [[] for _ in range(ranks)]
    while True:
        ready = [key for key in done if done[key] < micros and is_ready(*key)]
        if not ready:
            return cells
        kind, stage = draw.choices(ready, [liking[key] for key in ready])[0]
        cells[rank_of[stage]].append(f"{kind}{stage}.{done[kind, stage]}")
        done[kind, stage] += 1


def fill(draw, program, lines):
    """Draws the tables of a layout, which the program has or is to have; and takes another schedule for `interleaved`, where
    the number of micro-batches is none for it."""
    for line in lines:
        if not isinstance(line, Pipeline):
            continue
        ranks = next(line for line in lines if isinstance(line, Mesh)).axes[line.axis].value
        micros = micro_batches(Program(program.declarations, program.train, lines))
        chunks = line.options["chunks"].value if "chunks" in line.options else 1
        for table in tables_of([line]):
            table.cells = random_cells(draw, ranks, micros, chunks)
        if line.options.get("schedule") == Name("interleaved") and micros % ranks:
            line.options["schedule"] = Name("gpipe")
            line.options.setdefault("chunks", Number("2"))


# --- Smaller ones ------------------------------------------------------------------------------------------------------

def without(table, stage=None, micro=None):
    """Leaves out the last stage, or the last micro-batch: what is left can still be done."""
    def stays(cell):
        at = [int(number) for number in cell[1:].split(".")]
        return at[0] != stage and at[1] != micro
    cells = [list(filter(stays, line)) for line in table.cells]
    table.cells = [line for line in cells if line]


def drop_weights(table):
    table.cells = [[cell for cell in line if not cell.startswith("W")] for line in table.cells]
