"""Spaces of layouts that are small enough to compile all of them, and what mpc plan says of them: `spaces.py [NAME]...`
prints how far its bounds are below the times of the layouts that it lists."""
import json
import os
import pathlib
import subprocess
import sys

from texts import BUILD, ROOT, without_layout

HERE = pathlib.Path(__file__).resolve().parent
PROCESSORS = HERE / "processors.machine"

LLAMA = "layers=4 vocab=256 seq=128 embed=128 kv_heads=2 group=2 head=32 ff=384"
LLAMA_2 = LLAMA.replace("layers=4", "layers=2")
GPT = "layers=4 vocab=256 seq=64 embed=64 heads=4"
MIXTRAL = "layers=2 vocab=256 seq=64 embed=64 kv_heads=2 group=2 head=16 ff=128"
DEEPSEEK = ("dense_layers=1 layers=2 vocab=256 seq=64 embed=64 heads=4 nope=16 turned=8 vhead=16 q_rank=32 kv_rank=24 ff=128 "
            "expert_ff=32 experts=16 groups=4")
SHORT = "layers=2 vocab=256 seq=64"
WEIGHTS = "layers=32 vocab=64 seq=16 embed=512 heads=4"  # more bytes than all else: bounds of memory are close to it


class Space:
    def __init__(self, name, model, sizes, ranks, machine, batch, keep="", memory=None, block=True, prunes=False, edit=None, settings="", offload=None):
        self.name, self.model, self.block, self.prunes, self.edit = name, model, block, prunes, edit
        self.sizes = [f"-D{size}" for size in sizes.split()] + [f"--set=train.batch={batch}"]
        self.sizes += [f"--set={setting}" for setting in settings.split()]
        self.options = [f"--ranks={ranks}", f"--machine={machine}", *(f"--keep={kept}" for kept in keep.split())]
        self.options += [f"--memory={memory}"] if memory else []
        self.options += [f"--offload={offload}"] if offload else []

    def path(self, folder):
        """The model's file: a copy without its layout, if it has to be derived; a copy with another word in it."""
        example = ROOT / f"examples/{self.model}.mdl"
        text = example.read_text()
        if self.block and not self.edit:
            return example
        if self.edit:
            assert text.count(self.edit[0]) == 1
        (folder / example.name).write_text(text.replace(*self.edit) if self.edit else without_layout(text))
        return folder / example.name

    def plan(self, folder, *options):
        return plan(self.path(folder), *self.sizes, *self.options, *options)


# Of each: what of the language it has.  `memory` is what some of its layouts need: others do not fit.
SPACES = [
    Space("all axes of a dense model", "llama", LLAMA_2, 4, "h100", 4, "zero=1 overlap=0 recompute=none attend=gather"),
    Space("messages in pieces", "llama", "layers=2 seq=4096", 8, "h100", 16, "dp=2 tp=4 recompute=selective overlap=1 pieces=4", memory=1e15),
    Space("messages in pieces in stages", "llama", "layers=4 seq=2048", 8, "h100", 16, "pp=2 tp=2 recompute=selective overlap=0 schedule=1f1b pieces=4", memory=1e15),
    Space("micro-batches abreast", "llama", "layers=2 seq=4096", 8, "h100", 32, "dp=2 tp=4 cp=1 recompute=selective microbatch=1 abreast=2", memory=1e15),
    Space("micro-batches abreast, little memory", "llama", "layers=2 seq=4096", 8, "h100", 32, "tp=4 pp=1 cp=1 recompute=selective abreast=2", memory=4e9, prunes=True),
    Space("abreast in stages", "llama", "layers=8 seq=2048", 8, "h100", 32, "pp=2 tp=4 recompute=none microbatch=1 abreast=2", memory=1e15),
    Space("zero of stages, abreast", "llama", "layers=4 seq=2048", 8, "h100", 64, "pp=2 dp=2 tp=2 recompute=selective microbatch=1 chunks=1 abreast=2", memory=1e15),
    Space("abreast in stages, little memory", "llama", LLAMA, 4, PROCESSORS, 16, "pp=2 tp=2 abreast=2", memory=7e6, prunes=True),
    Space("messages that are packed", "mixtral", "layers=2", 8, "h100", 32, "ep=8 recompute=none microbatch=2", memory=1e15),
    Space("experts abreast", "mixtral", MIXTRAL, 2, "h100", 8, "ep=2 recompute=none abreast=2"),
    Space("messages of zero in stages", "llama", "layers=4 seq=2048", 8, "h100", 16, "pp=2 tp=2 recompute=selective microbatch=1 chunks=1", memory=1e15),
    Space("attention by all means", "llama", LLAMA_2, 2, "a100", 2, "cp=2 zero=3"),
    Space("a ring of many turns", "llama", LLAMA_2, 8, "h100", 2, "cp=8 attend=ring zero=1 overlap=0"),
    Space("rings in stages", "llama", "layers=4", 16, "h100", 16, "cp=8 pp=2 attend=ring microbatch=1 overlap=1 zero=1", memory=1e15),
    Space("schedules", "gpt2", GPT, 4, "h100", 8, "pp=4"),
    Space("schedules beside zero", "gpt2", GPT, 4, PROCESSORS, 8, "pp=2 dp=2 zero=1 recompute=none"),
    Space("more stages than a machine has ranks", "gpt2", GPT, 8, PROCESSORS, 16, "pp=4 dp=2 zero=1 recompute=none overlap=0"),
    Space("zero and micro-batches", "gpt2", GPT, 2, "h200", 4, "dp=2 recompute=selective"),
    Space("processors", "chars", "", 4, PROCESSORS, 8),
    Space("experts", "mixtral", MIXTRAL, 2, "h100", 2, "overlap=0 recompute=none"),
    Space("experts over processors", "mixtral", MIXTRAL, 2, PROCESSORS, 2, "ep=2"),
    Space("latent attention, two repeats", "deepseek", DEEPSEEK, 2, "h200", 2, "zero=1 recompute=none overlap=0 microbatch=1"),
    Space("large experts in stages of few copies", "deepseek", "dense_layers=1 layers=3", 16, "h200", 32, "pp=2 dp=8 tp=1 microbatch=2 recompute=none overlap=1", memory=1e15),
    Space("sequences split beside experts", "deepseek", DEEPSEEK, 8, "h200", 8, "cp=2 ep=2 recompute=none overlap=1 microbatch=1 zero=1"),
    Space("one sequence split beside experts", "mixtral", "layers=2", 8, "h100", 64, "cp=2 tp=2 pp=2 recompute=none zero=1 overlap=1 microbatch=1", memory=1e15),
    Space("zero 3 beside other messages", "llama3.1", "layers=2 embed=8192 group=8 ff=28672", 16, "h100", 64, "cp=2 tp=8 zero=3 recompute=full microbatch=64", memory=1e15),
    Space("zero between machines", "llama", "layers=1", 16, "h100", 16, "dp=16 recompute=none microbatch=1", memory=1e15),
    Space("records", "vit", "layers=2", 2, "h100", 4, "recompute=none"),
    Space("narrow gradients", "gpt2", GPT.replace("layers=4", "layers=2"), 2, "h100", 4, "dp=2 recompute=none",
          edit=("zero 1 over dp", "zero 1 over dp (grad_dtype = bf16)"), settings="train.grad_storage=bf16"),
    Space("a scan", "lstm", "", 2, "a100", 4),
    Space("a scan along the sequence", "mamba", "layers=2", 2, "h100", 2),
    Space("an encoder and a decoder", "t5", "layers=2 vocab=256", 2, "h200", 2, "recompute=none"),
    Space("windows", "gemma2", SHORT, 2, "h100", 2, "zero=2 overlap=0 recompute=none"),
    Space("an encoder", "bert", SHORT, 2, PROCESSORS, 4, "recompute=selective"),
    Space("derived", "gpt2", GPT, 2, "h100", 4, "recompute=none overlap=0", block=False),
    Space("derived, with pairs", "llama", LLAMA_2, 2, PROCESSORS, 4, "overlap=0 recompute=full", block=False),
    Space("large weights", "gpt2", WEIGHTS, 4, "h100", 16, "dp=4 recompute=full microbatch=1", memory=1e15),
    Space("large weights, one micro-batch", "gpt2", WEIGHTS, 2, "h100", 2, "dp=2 recompute=full microbatch=1", memory=1e15),
    Space("large ends of stages", "gpt2", WEIGHTS.replace("layers=32 vocab=64", "layers=8 vocab=16384"), 4, "h100", 16, "pp=4 recompute=full microbatch=1", memory=1e15),
    Space("large weights in stages", "gpt2", WEIGHTS, 4, "h100", 16, "dp=2 pp=2 recompute=full microbatch=1 overlap=0 chunks=2", memory=1e15),
    Space("large experts, sequences split", "mixtral", "layers=4 vocab=64 seq=16 embed=512 kv_heads=2 group=2 head=16 ff=1024", 4, "h100", 16,
          "dp=2 cp=2 recompute=full microbatch=1 overlap=0 attend=gather", memory=1e15),
    Space("offloaded state", "gpt2", WEIGHTS, 4, "h100", 16, "dp=4 recompute=full microbatch=1", memory=1e15, offload="optimizer to host"),
    Space("offloaded state in stages", "gpt2", WEIGHTS, 4, "h100", 16, "dp=2 pp=2 recompute=full microbatch=1 overlap=0 chunks=2", memory=1e15,
          offload="optimizer to host"),
    Space("updates just in time", "gpt2", WEIGHTS, 16, "h100", 512, "dp=16 recompute=full microbatch=1 zero=3", memory=1e15,
          offload="optimizer to host keep 6e7 just_in_time 16"),
    Space("offloaded weights", "gpt2", WEIGHTS, 4, "h100", 16, "dp=4 microbatch=1 recompute=none overlap=0", memory=1e15,
          offload="optimizer, params to host keep 1e6"),
    Space("offloaded activations", "llama", "layers=16 seq=2048 vocab=64", 2, "h100", 4, "microbatch=1 overlap=0 recompute=none cp=1 pp=1", memory=1e15,
          offload="optimizer, activations to host"),
    Space("state on disk", "gpt2", GPT, 4, PROCESSORS, 16, "pp=2 recompute=none overlap=0 zero=1", memory=1e15, offload="optimizer to disk"),
    Space("little memory, offloaded", "gpt2", WEIGHTS, 2, "h100", 4, "overlap=0 recompute=full microbatch=1 pp=1", memory=450e6,
          prunes=True, offload="optimizer to host"),
    Space("little memory", "gpt2", "layers=4 seq=64 embed=512 heads=4", 2, "h100", 4, "overlap=0 recompute=none", memory=485e6, prunes=True),
    Space("little memory, stages", "llama", LLAMA, 4, PROCESSORS, 8, "pp=2 tp=2", memory=7e6, prunes=True),
    # Of the sizes of real models, whose kernels and messages take longer than their launches.
    Space("rings of real sizes", "llama", "layers=4 seq=8192", 16, "h100", 32, "cp=16 attend=ring"),
    Space("rings and zero", "llama", "layers=4", 16, "h100", 32, "cp=8 dp=2 attend=ring recompute=full", memory=1e15),
    Space("zero of four abreast", "llama", "layers=4 seq=128 vocab=1024", 16, "h100", 64, "dp=16 recompute=none microbatch=1 abreast=4", memory=1e15),
    Space("four abreast in stages", "llama", "layers=8 seq=4096", 16, "h100", 64, "pp=2 cp=2 tp=4 recompute=none microbatch=1 abreast=4 zero=1", memory=1e15),
    Space("experts in stages, abreast", "mixtral", "layers=4", 8, "h100", 64, "ep=4 pp=2 cp=1 recompute=none microbatch=1 abreast=2", memory=1e15),
    Space("rings in stages, abreast", "llama", "layers=4", 16, "h100", 16, "cp=8 pp=2 attend=ring microbatch=1 overlap=1 zero=1 abreast=2", memory=1e15),
    Space("rings abreast", "llama", LLAMA_2, 8, "h100", 16, "cp=8 attend=ring zero=1 overlap=0 abreast=2"),
    Space("a scan abreast", "lstm", "", 2, "a100", 8, "abreast=2"),
    Space("pieces of two abreast", "llama", "layers=2 seq=4096", 8, "h100", 32, "tp=4 cp=1 pp=1 recompute=selective abreast=2 pieces=2", memory=1e15),
    Space("large experts and cp", "mixtral", "layers=4", 8, "h100", 16, "microbatch=1 recompute=none cp=2 zero=1"),
    Space("experts and cp between machines", "mixtral", "layers=2", 32, "h200", 32, "cp=4 ep=4 recompute=full overlap=1 pp=1", memory=1e15),
    Space("experts of real sizes", "deepseek", "dense_layers=1 layers=1", 32, "h200", 32,
          "recompute=none overlap=1 pp=1 tp=1 microbatch=1 attend=gather", memory=1e15),
    Space("of few layers the table is most", "gpt2", "layers=1", 2, "h100", 64),
    Space("an example as it is", "gpt2", "", 4, "h100", 32, "recompute=none"),
]
# With ALL=1, since compiling all of them takes 10 seconds to a minute each.
LARGER = [
    Space("all of a dense model", "llama", LLAMA, 4, "h100", 4),
    Space("cp", "llama", "layers=4", 4, "h100", 8, "cp=2 recompute=none"),
    Space("eight ranks", "llama", LLAMA, 8, "h100", 8, "pp=2 recompute=none zero=1"),
    Space("experts", "mixtral", MIXTRAL, 4, "a100", 4),
    Space("latent attention, experts abreast", "deepseek", DEEPSEEK, 8, "h200", 16, "ep=2 recompute=none microbatch=1 pp=1 tp=1 abreast=2"),
    Space("all of a dense model, abreast", "llama", LLAMA, 4, "h100", 8, "abreast=2"),
    Space("latent attention in stages, abreast", "deepseek", DEEPSEEK, 8, "h200", 16, "ep=4 pp=2 recompute=none tp=1 abreast=2"),
    Space("large experts", "mixtral", "layers=2", 4, "h100", 8, "microbatch=1 recompute=none"),
    Space("latent attention", "deepseek", DEEPSEEK, 4, "h200", 4, "recompute=none overlap=1"),
]


def plan(path, *options):
    """The answer in JSON; in "first" its first row."""
    words = [BUILD / "mpc", "plan", path, *options, "--json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stderr}"
    return json.loads(done.stdout)


def meshes(answer):
    """Its rows by their meshes."""
    return {tuple(row["mesh"].items()): row for row in answer["best"]}


def most_below(answer):
    """How far a bound is below the time, at most, of the layouts that are listed."""
    return max(1 - row["bound"] / row["seconds"] for row in answer["best"])


def main():
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        for space in SPACES + (LARGER if os.environ.get("ALL") else []):
            if len(sys.argv) > 1 and space.name not in sys.argv[1:]:
                continue
            answer = space.plan(pathlib.Path(folder), "--top=100")
            print(f"{space.name}: {answer['space']['layouts']} layouts, {answer['space']['compiled']} compiled; bounds are at most "
                  f"{100 * most_below(answer):.1f} % below times, and {100 * answer['overrun']:.2f} % above")


if __name__ == "__main__":
    main()
