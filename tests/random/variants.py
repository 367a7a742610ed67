"""The ways to compile and run one program, each with its own options and bounds."""
import copy
import random

import layouts
from constants import is_large, known_numbers
from tables import micro_batches
from tree import Name, Number, Pipeline, Repeat, Zero


def with_options(*options):
    def change(case, tools):
        case.how.options += options
    return change


def has_repeat(program):
    return any(isinstance(statement, Repeat) for block in layouts.bodies(program) for statement in layouts.statements_of(block.body))


def with_precision(precision):
    """In bf16, messages of gradients may be, too, and in bf16 and fp8 what is kept of them.  fp8 is for what is repeated:
    without that, it is bf16."""
    def change(case, tools):
        has_layers = precision != "fp8" or has_repeat(case.program)
        case.program.train["precision"] = Name(precision if has_layers else "bf16")
        if precision in ("bf16", "fp8") and random_of(case, "kept").random() < 0.4:
            case.program.train["grad_storage"] = Name("bf16")
        for line in case.program.parallel:
            if isinstance(line, Zero) and precision == "bf16" and random_of(case, "sent").random() < 0.5:
                line.options["grad_dtype"] = Name("bf16")
    return change


def auto(case, tools):
    case.how.memory = random_of(case, "auto").choice([0, 0.25, 0.5, 0.75])


def chunks(case, tools):
    """Head and loss in chunks of tokens, where the model has such a loss."""
    case.program.train["loss_chunks"] = Number(str(random_of(case, "chunks").choice([2, 2, 3, 4, 8])))


def offload(case, tools):
    """State, the weights that the model reads, activations, on disk, or on the host of a GPU; at times some of it stays, or updates wait for
    the next step."""
    draw = random_of(case, "offload")
    has_pipeline = any(isinstance(line, Pipeline) for line in [*case.program.parallel, *(case.then or [])])
    classes = ["optimizer"] + (["params"] + ["activations"] * (not has_pipeline)) * has_repeat(case.program)
    what = ", ".join(sorted(draw.sample(classes, draw.randint(1, len(classes))), key=classes.index))
    tier = "host" if case.how.target == "cuda" else "disk"
    kept = draw.choice(["", "", " keep 2000"])
    waits = "optimizer" in what and "params" not in what and draw.random() < 0.7
    comes_first = has_pipeline or any(isinstance(line, Zero) for line in [*case.program.parallel, *(case.then or [])])
    forwards = 1 if comes_first or "abreast" in case.program.train or not has_repeat(case.program) else draw.randint(1, min(micro_batches(case.program), 4))
    together = f" {forwards}" if forwards > 1 else ""
    case.how.options += (f"--offload={what} to {tier}{kept}{f' just_in_time{together}' * waits}",)


def abreast(case, tools):
    """So many micro-batches beside each other, where a step may have several."""
    train, count = case.program.train, random_of(case, "abreast").choice([2, 2, 3, 4])
    if case.program.whole:
        return
    train.setdefault("microbatch", train["batch"])
    train["batch"], train["abreast"] = Number(str(train["batch"].value * count)), Number(str(count))


def own_weights(case, tools):
    case.how.own_weights = True


def cuda(case, tools):
    case.how.target = "cuda"


def nccl_memory(case, tools):
    """Tensors that NCCL reads and writes in place."""
    case.how.nccl_memory = True


def optimized(case, tools):
    case.how.optimize = True


def sanitized(case, tools):
    case.how.sanitize = True


def random_of(case, what):
    return random.Random(f"{what} {case.seed}")


def mesh(comm, most_ranks=8, staged=layouts.STAGED):
    """A layout for several ranks, unless the program says one already."""
    def change(case, tools):
        case.how.comm = comm
        if not case.program.parallel:
            layouts.add_layout(random_of(case, comm), case.program, most_ranks, staged)
    return change


def checkpoint(case, tools):
    """Goes on under another layout, unless the file says which."""
    if case.then is None:
        case.then = layouts.add_two_layouts(random_of(case, "checkpoint"), case.program)
    case.how.comm = "tcp"


# name: (what it changes, how often it is drawn)
CHANGES = {
    "base": (with_options(), 0),
    "own-weights": (own_weights, 1),
    "none": (with_options("--recompute=none"), 0.5),
    "full": (with_options("--recompute=full"), 2),
    "auto": (auto, 2),
    "selective": (with_options("--recompute=selective"), 2),
    "verify": (with_options("--verify-passes"), 2),
    "exact": (with_options("--verify-passes=exact"), 2),
    "bf16": (with_precision("bf16"), 2),
    "fp16": (with_precision("fp16"), 1.5),
    "fp8": (with_precision("fp8"), 0.7),
    "chunks": (chunks, 1),
    "offload": (offload, 1.5),
    "cuda": (cuda, 1),
    "nccl-memory": (nccl_memory, 0),
    "abreast": (abreast, 1),
    "tcp": (mesh("tcp"), 8),
    "mpi": (mesh("mpi", 4), 1.5),
    "stages": (mesh("tcp", staged=1), 1.5),  # a pipeline, where there is a repeat
    "checkpoint": (checkpoint, 2),
    "sanitize": (sanitized, 0.7),
    "optimized": (optimized, 0.4),  # loops are vectors then; gcc takes seconds for them
}


ALONE = 4  # how often base is drawn where it is not tried anyway

# Several at once, with how often they are drawn.
JOINED = {"tcp+optimized": 0.2, "bf16+optimized": 0.2, "tcp+verify": 1, "tcp+exact": 1, "tcp+bf16": 1.5, "tcp+fp16": 1, "tcp+fp8": 0.5, "fp8+verify": 0.5,
          "tcp+fp8+exact": 0.3, "fp8+cuda": 0.2, "tcp+cuda": 2, "tcp+abreast": 2, "tcp+abreast+verify": 0.5, "abreast+full+exact": 0.5, "abreast+bf16": 0.5, "tcp+abreast+cuda": 0.5,
          "stages+abreast": 1, "stages+abreast+verify": 0.5, "stages+abreast+cuda": 0.3,
          "tcp+cuda+nccl-memory": 0.5, "stages+cuda+nccl-memory": 0.3,
          "tcp+sanitize": 1,
          "tcp+chunks": 1, "chunks+exact": 1, "chunks+verify": 0.5, "chunks+bf16": 0.5, "chunks+full": 0.5, "stages+chunks": 0.5, "tcp+chunks+verify": 0.5,
          "stages+verify": 0.5, "stages+bf16": 0.3, "stages+full": 0.3, "bf16+full": 0.5, "tcp+own-weights": 0.7, "bf16+verify": 0.5, "bf16+cuda": 0.5, "tcp+auto": 1, "auto+verify": 1,
          "auto+exact": 1, "auto+offload": 0.5, "auto+offload+verify": 0.3, "tcp+offload": 2, "offload+verify": 1, "offload+exact": 1, "tcp+offload+verify": 0.5, "bf16+offload": 1, "fp16+offload": 0.5,
          "stages+offload": 1, "cuda+offload": 0.7, "abreast+offload": 0.5, "tcp+abreast+offload": 0.5, "checkpoint+offload": 0.5, "offload+full": 0.5, "tcp+bf16+offload": 0.5}


# Of programs whose dims have several blocks of 8 bits: one of these takes the place of another one.
IN_BLOCKS = ["fp8", "tcp+fp8", "fp8+cuda", "tcp+fp8+cuda", "tcp+fp8+exact"]


def has_blocks(program):
    """May a repeat have products that are rounded in several blocks of 128?"""
    known = known_numbers(program)
    return has_repeat(program) and any(known.get(dim, 0) > 128 and known[dim] % 128 == 0 for dim in program.dims)


def apply(name, case, tools):
    """The case in this variant; names are joined by `+`: bf16+full."""
    case = copy.deepcopy(case)
    case.how.threads = random_of(case, "threads").choice([1, 2, 3] if is_large(case.program) else [1, 1, 1, 2])
    for part in name.split("+"):
        CHANGES[part][0](case, tools)
    return case


def drawn(seed, names, count, program):
    """Which variants of program number `seed` are tried: base and `count` others, or of those that are named; for
    count 0 one, which may be base."""
    draw = random.Random(f"variants {seed}")
    if names:
        return names if len(names) <= count + 1 else draw.sample(names, max(count, 1))
    weights = {name: weight for name, (_, weight) in CHANGES.items() if weight} | JOINED
    if has_blocks(program):
        return (["base"] if count else []) + draw.sample(IN_BLOCKS, min(max(count, 1), 2))
    if not count:
        return draw.choices(["base", *weights], [ALONE, *weights.values()])
    chosen = set(draw.choices(list(weights), list(weights.values()), k=count))
    return ["base", *sorted(chosen)]


def prepare(names, tools):
    """Builds what these variants need, once."""
    if (names is None or any("cuda" in name for name in names)) and not tools.has_device:
        tools.prepare_device()
    if (names is None or any("sanitize" in name for name in names)) and not tools.has_sanitized:
        tools.prepare_sanitized()
