"""The models of this folder, at sizes that a test trains in a moment; and the table of them in docs/models.md."""
import os
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
HEAD = "| file | what it shows | loss | gradient norm | weights |\n| --- | --- | --- | --- | --- |\n"


@dataclass
class Case:
    name: str
    shows: str
    inputs: dict = field(default_factory=dict)  # name: shape of a record, and a kind: numbers, or below a whole number
    sizes: dict = field(default_factory=dict)
    frozen: str = " "  # the beginning or end of the names of what is not trained
    edit: tuple = ()
    microbatch: int = 0  # 0: the whole batch


TINY = dict(heads=2, embed=16)
CASES = [
    Case("convnext", "convolutions by channel; stages of their own sizes, one block for all",
         dict(image=((32, 32, 3), "f32"), label=((), 5)), dict(row=32, c1=4, **{"class": 5})),
    Case("mixer", "MLPs along either dim of a tensor", dict(image=((6, 10), "f32"), label=((), 5)),
         dict(layers=2, patch=6, pixel=10, embed=8, mix=5, ff=12, **{"class": 5}), edit=("[embed, class] = zeros", "[embed, class] = normal(0.1)")),
    Case("unet", "pooling, enlarging, joined channels; a class for each pixel",
         dict(image=((16, 16, 3), "f32"), label=((16, 16), 5)), dict(y0=16, x0=16, c0=4, **{"class": 5})),
    Case("whisper", "a convolution along time; a decoder that attends to an encoder",
         dict(sound=((20, 6), "f32"), tokens=((7,), 30), labels=((7,), 30)),
         dict(TINY, layers=2, frame=20, mel=6, seq=7, vocab=30)),
    Case("clip", "a contrastive loss over a group of pairs",
         dict(image=((5, 4, 6), "f32"), text=((5, 7), 30)),
         dict(TINY, layers=2, pair=5, patch=4, pixel=6, seq=7, vocab=30, joint=8)),
    Case("dpo", "two instances of one block, of which one is frozen",
         dict(tokens=((2, 9), 30), answered=((2, 8), "bool")), dict(TINY, layers=2, seq=8, vocab=30), "reference."),
    Case("distill", "two models of different widths; Kullback-Leibler divergence",
         dict(tokens=((9,), 30)), dict(heads=2, wide=16, thin=8, seq=8, vocab=30), "teacher."),
    Case("looped", "one instance in all turns of a repeat: a core of layers, used again and again",
         dict(tokens=((9,), 30)), dict(TINY, layers=2, turns=3, seq=8, vocab=30)),
    Case("gan", "one instance with gradients and without, in one loss",
         dict(image=((10,), "f32"), noise=((4,), "f32")), dict(code=4, pixel=10, hidden=8)),
    Case("qkclip", "the largest logit over the batch, which scales weights after the optimizer's step",
         dict(tokens=((9,), 30)), dict(TINY, layers=2, tau=0.1, seq=8, vocab=30), ".top",
         edit=('    group "wte" adamw(lr = 3e-4)\n', ""), microbatch=2),
    Case("jepa", "a running mean of an instance: a target encoder",
         dict(image=((5, 6), "f32"), shown=((5,), "bool")), dict(TINY, layers=2, kept=0.9, patch=5, pixel=6), "target."),
    Case("simclr", "all records of a batch beside each record: negatives of a contrastive loss",
         dict(view_1=((6,), "f32"), view_2=((6,), "f32")), dict(pixel=6, hidden=8, joint=5)),
    Case("deltanet", "the gated delta rule in chunks, with `solve`, beside the same place by place",
         dict(tokens=((9,), 30)), dict(layers=2, chunk=2, place=4, vocab=30, embed=8, heads=2, tap=3, ff=12)),
    Case("xlstm", "a memory that is a matrix, with exponential gates: a scan whose carry keeps its own scale",
         dict(tokens=((9,), 30)), dict(layers=2, embed=8, heads=2, tap=3, seq=8, vocab=30)),
    Case("towers", "a recommender: each item of a list, by the same tower",
         dict(user=((), 20), item=((6,), 30)), dict(choice=6, user_=20, item_=30, embed=8, hidden=10, near=5)),
    Case("dlrm", "a table for each property; products of each two vectors",
         dict(numbers=((4,), "f32"), properties=((3,), 9), clicked=((), "f32")),
         dict(number=4, property=3, bucket=9, embed=8, hidden=10, hidden_2=6)),
    Case("ctc", "a loss of its own: the sum over all ways to place letters in time, by a scan",
         dict(sound=((8, 4), "f32"), label=((3,), 3), length=((), 4)),
         dict(time=8, mel=4, hidden=6, letter=4, text=3)),
    Case("gat", "a graph: attention along its edges, added up at each node",
         dict(vertices=((5, 4), "f32"), begin=((9,), 5), end=((9,), 5), real=((9,), "bool"), wanted=((), "f32")),
         dict(layers=2, vertex=5, edge=9, feature=4, hidden=6, heads=2)),
    Case("depths", "half of the layers see only positions that a router chooses of each sequence",
         dict(tokens=((9,), 30)), dict(TINY, pairs=2, seq=8, kept=3, vocab=30)),
    Case("spectral", "a state that follows products of itself with a matrix: power iteration",
         dict(image=((2, 6), "f32")), dict(layers=2, pixel=6, hidden=5), ".u"),
    Case("grud", "a recurrent network on measurements of which most are missing",
         dict(value=((6, 4), "f32"), seen=((6, 4), "bool"), gap=((6,), "f32"), ill=((), "bool")),
         dict(time=6, sensor=4, hidden=6)),
    Case("tabular", "numbers and categories of tables; the Huber loss",
         dict(numbers=((4,), "f32"), categories=((3,), 9), wanted=((), "f32")),
         dict(number=4, category=3, level=9, embed=8, ff=10), edit=(", 0.1), w_down", ", 0), w_down")),
    Case("nerf", "a radiance field: sums along a ray, of what the sums before let through; another layer in the middle",
         dict(origin=((3,), "f32"), direction=((3,), "f32"), color=((3,), "f32")),
         dict(layers=6, sample=12, octave=4, hidden=16, half=8)),
    Case("egnn", "atoms in space: each pair of them, and two values that a repeat carries",
         dict(kind=((5,), 7), place=((5, 3), "f32"), real=((5,), "bool"), energy=((), "f32")),
         dict(layers=2, atom=5, element=7, embed=8)),
    Case("nsa", "attention to blocks of keys that are chosen by their means",
         dict(tokens=((13,), 30)), dict(layers=2, near=3, block_=3, place=4, chosen=2, vocab=30, embed=8, group=2, head=4, ff=12)),
    Case("evoformer", "pairs of places: they bias attention, and learn of triangles",
         dict(sequence=((3, 5), 7), far=((5, 5), "f32")),
         dict(layers=2, row=3, place=5, kind=7, wide=8, pair=6, heads=2, head=3, low=5, apart=4)),
    Case("kalman", "matrices that a scan carries; the likelihood of measurements of which some are missing",
         dict(value=((6,), "f32"), seen=((6,), "bool")), dict(time=6, state_=3)),
]
DRAWN = {"dit": "random noise and times; a condition that shifts, scales and gates",
         "vae": "a code drawn from a distribution that is computed"}
DRAWN_SIZES = {"dit": dict(layers=2, patch=4, pixel=6, embed=8, wave=3, heads=2, **{"class": 5}),
               "vae": dict(pixel=10, hidden=8, code=3)}
LORA = "frozen weights and trained ones of low rank beside them"
ROWS = [(case.name, case.shows) for case in CASES] + [("lora", LORA), *DRAWN.items()]


def row_of(name, shows, figures, page):
    """A model that was not run keeps its row."""
    start = f"| `tests/models/{name}.mdl` | "
    if name in DRAWN:
        return f"{start}{shows} | | | |\n"
    if name in figures:
        return f"{start}{shows} | " + " | ".join(f"{x:.0e}" for x in figures[name]) + " |\n"
    return next((line + "\n" for line in page.splitlines() if line.startswith(start)), "")


def write_table(figures):
    if not os.environ.get("BLESS") or not figures:
        return
    page = PAGE.read_text()
    before, _, rest = page.partition("| file | what it shows |")
    rows = [row_of(name, shows, figures, page) for name, shows in ROWS]
    PAGE.write_text(before + HEAD + "".join(rows).rstrip("\n") + (rest[rest.index("\n\n"):] if "\n\n" in rest else "\n"))
