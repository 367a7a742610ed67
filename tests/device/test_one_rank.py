"""Trainers for one GPU do what trainers for a processor do: train, evaluate, save, load, sample, trace."""
import itertools
import json
import re

import pytest
from conftest import emulated, read_log, some, start

STEPS = 3
U = 2.0**-8  # the largest relative error of one rounding to bf16
# fp32: sums in another order (tests/ranks/test_layouts.py says how much that is).  bf16: a logit of size 1/2 goes
# through 25 roundings, at other places of the two programs; a mean over 64 tokens of such errors, of random sign, is
# 0.5 sqrt(25 / 64) U of a loss of 5, so U / 16 of it.  The gradient's norm: sqrt(50 / 64) U.  Three times each.
# fp16 rounds to 2^-11.  fp8: twice as much as bf16, since what differs there may be rounded to another number of 8 bits.
TOLERANCE = {"fp32": {"loss": 1e-5, "grad_norm": 1e-5}, "bf16": {"loss": 3 * U / 16, "grad_norm": 3 * U},
             "fp16": {"loss": 3 * U / 128, "grad_norm": 3 * U / 8}, "fp8": {"loss": 3 * U / 8, "grad_norm": 6 * U}}


def train(trainer, data, directory, *options, environment=()):
    directory.mkdir(exist_ok=True)
    start(trainer.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--log", "log", "--overwrite", *options),
          directory, environment=environment)
    return read_log(directory / "log")


def assert_same(log, reference, precision):
    assert [line["step"] for line in log] == [line["step"] for line in reference]
    for line, expected in zip(log, reference):
        for key, tolerance in TOLERANCE[precision].items():
            error = abs(line[key] - expected[key]) / abs(expected[key])
            assert error <= tolerance, f"step {line['step']}: {key} {line[key]}, not {expected[key]} ({error:.1e})"


MODELS = [(model, precision) for precision in ("fp32", "bf16") for model in ("chars", "gpt2", "llama", "mixtral", "bert")]
MODELS += [("chars", "fp16"), ("chars", "fp8")]


@pytest.mark.parametrize("model,precision", some(MODELS, 2, 3, 6, 9, 10, 11))  # each model, each precision
def test_training(model, precision, compiled, data, tmp_path):
    settings = (("precision", precision),)
    logs = [train(compiled(model, target, settings), data, tmp_path / target) for target in ("c", "cuda")]
    assert [line.get("loss_scale") for line in logs[0]] == [line.get("loss_scale") for line in logs[1]]
    assert_same(logs[1], logs[0], precision)
    for field in ("expert_load", "dropped"):
        assert (field in logs[0][0]) == (model == "mixtral")
        for line, expected in zip(*logs) if precision == "fp32" else ():  # in bf16 a choice may turn over
            assert line.get(field, []) == pytest.approx(expected.get(field, []), rel=1e-5)
    assert abs(logs[0][-1]["loss"] - logs[0][0]["loss"]) > 0.01, "equal losses mean little if nothing is learned"


@pytest.mark.parametrize("precision,microbatch", some([("bf16", 1), ("bf16", 4), ("fp32", 1)], 0, 2))
def test_kept_gradients(precision, microbatch, compiled, data, tmp_path):
    """In bf16: products add to such sums.  In fp32 sums in another order round one number in thousands to its neighbour,
    2^-8 away, which changes the norm by less than the order does."""
    settings = (("precision", precision), ("microbatch", microbatch), ("grad_storage", "bf16"))
    logs = [train(compiled("gpt2", target, settings), data, tmp_path / target) for target in ("c", "cuda")]
    assert_same(logs[1], logs[0], precision)


@pytest.mark.parametrize("precision", some(["bf16", "fp32"], 0, 1))
def test_long_rows(precision, compiled, data, tmp_path):
    """Of so many logits of a token no multiprocessor keeps all: the loss passes over them twice."""
    sizes = [word for size in ("layers=1", "embed=8", "heads=1", "seq=8", "vocab=60003") for word in ("-D", size)]
    settings = (("precision", precision), ("batch", 2), ("microbatch", 1), ("optimizer.lr", 0.03))
    trainers = [compiled("gpt2", target, settings, (*sizes,)) for target in ("c", "cuda")]
    loss = re.search(r"kernel_loss_4\(.*?^}", (trainers[1].folder / "kernels.cu").read_text(), re.S | re.M)[0]
    assert loss.count("rt_rescale") == 2 and loss.count("RT_SMALL_SHARED") == 1  # in packs that stay, and others
    logs = [train(trainer, data, tmp_path / trainer.target) for trainer in trainers]
    assert_same(logs[1], logs[0], precision)
    assert abs(logs[0][-1]["loss"] - logs[0][0]["loss"]) > 0.01


@emulated
def test_initial_weights(compiled, data, tmp_path):
    """A kernel makes what processors compute, bit for bit, since the emulated one has their logarithm and cosine."""
    files = []
    for target in ("c", "cuda"):
        trainer = compiled("chars", target, edit=("= zeros", "= uniform(-0.1, 0.1)"))
        start(trainer.command("--data", data, "--data-format", "bytes", "--steps", 0, "--save", target), tmp_path)
        files.append((tmp_path / target).read_bytes())
    assert files[0] == files[1]


OPTIMIZERS = {
    "muon": 'muon(lr = 0.02)\n    group "wte, wpe, *.gain, *.bias, *.b*" lion(lr = 1e-3)',
    "adafactor": "adafactor(lr = 0.03)\n    ema = 0.9\n    clip_value = 0.01",
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(optimizer, compiled, data, tmp_path):
    """Their products and means; evaluation with the mean of weights."""
    edit = ("adamw(lr = 2e-3, beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1)", OPTIMIZERS[optimizer])
    trainers = [compiled("chars", target, edit=edit) for target in ("c", "cuda")]
    options = ["--eval-data", data, "--eval-batches", 2, *(["--ema"] if optimizer == "adafactor" else [])]
    logs = [train(trainer, data, tmp_path / trainer.target, *options) for trainer in trainers]
    for line, expected in zip(*logs):
        assert abs(line["loss"] - expected["loss"]) < 1e-4 * expected["loss"]
    assert abs(logs[0][-1]["eval_loss"] - logs[1][-1]["eval_loss"]) < 1e-4 * logs[1][-1]["eval_loss"]


def test_products_that_cublaslt_does_not_take(compiled, data, tmp_path):
    """A sum over two dims that lie apart, for so few columns that a copy is not worth its time: a kernel of ours does it."""
    edit = ("block mlp(", """dim two = 2

block few(x: [batch, seq, embed]) {
    param w : [heads, head, two] = normal(0.3)
    y : [batch, heads, seq, head] = split(x, embed -> (heads, head))
    return x + sum(dot(y, w, heads, head), two)
}

block mlp(""", "return x + mlp(norm(x) as ln_2)", "return few(x + mlp(norm(x) as ln_2))")
    trainers = [compiled("chars", target, edit=edit) for target in ("c", "cuda")]
    assert "cuBLASLt does not take" in (trainers[1].folder / "kernels.cu").read_text()
    logs = [train(trainer, data, tmp_path / trainer.target) for trainer in trainers]
    assert_same(logs[1], logs[0], "fp32")


def test_shared_memory_of_both_kinds(compiled, data, tmp_path):
    """A row of the loss needs less than 48 KiB, but not with the memory that the kernel declares itself."""
    trainer = compiled("gpt2", "cuda", (("precision", "bf16"), ("batch", 1), ("microbatch", 1)), ("-D", "layers=1", "-D", "vocab=24448"))
    rows = re.findall(r'"kernel_loss\w*",[^}]*\.shared = (\d+)', (trainer.folder / "trainer.c").read_text())
    assert any(48 * 1024 - 512 < int(bytes_) <= 48 * 1024 for bytes_ in rows), rows
    train(trainer, data, tmp_path)


@pytest.mark.parametrize("graph", [(), ("--no-graph",)], ids=str)
def test_index_out_of_range(graph, compiled, data, tmp_path):
    """Kernels note it, and the trainer names it: in a step that runs as a graph as in one that does not."""
    trainer = compiled("chars", "cuda", edit=("wte[vocab = tokens]", "wte[vocab = tokens + 200]"))
    options = ["--data", data, "--data-format", "bytes", "--steps", 4, *graph]
    done = start(trainer.command(*options), tmp_path, 1)
    assert re.search(r"error: .*chars.mdl:\d+:\d+: index (25[6-9]|2[6-9]\d|3\d\d) of dim 'vocab' is out of range: it must be "
                     r"from 0 to 255; fix the expression", done.stderr), done.stderr


@emulated
@pytest.mark.parametrize("how,precision", some(itertools.product(["none", "unknown", "late", "inplace"], ["fp32", "bf16"]), 0, 3, 5, 7))
def test_epilogues_that_cublaslt_does_not_have(how, precision, compiled, data, tmp_path):
    """Kernels of ours do what it leaves."""
    trainers = [compiled("gpt2", target, (("precision", precision),)) for target in ("c", "cuda")]
    for field in ("has_bias = true", "activation = RT_GELU_TANH", "keeps_before = true", "activation = RT_GELU_TANH_SLOPE", "sums = RT_SUMS_A"):
        assert f".{field}," in (trainers[1].folder / "trainer.c").read_text()
    logs = [train(trainer, data, tmp_path / trainer.target, environment={"EMULATED_EPILOGUES": how}.items())
            for trainer in trainers]
    assert_same(logs[1], logs[0], precision)


@emulated
@pytest.mark.parametrize("edit", [("", ""), ("= 4 * embed", "= 4 * embed + 3"), ("gelu_tanh", "relu")])
def test_epilogues_within_their_limits(edit, compiled, data, tmp_path):
    """cuBLASLt does a bias and gelu; where columns do not lie a multiple of 8 apart, or relu's operand is to be kept, it
    is not asked to (the emulated one would end)."""
    trainers = [compiled("gpt2", target, edit=edit) for target in ("c", "cuda")]
    logs = [train(trainer, data, tmp_path / trainer.target) for trainer in trainers]
    assert_same(logs[1], logs[0], "fp32")
    wrong = train(trainers[1], data, tmp_path / "wrong", environment={"EMULATED_EPILOGUES": "wrong"}.items())
    assert max(abs(a[key] - b[key]) for a, b in zip(wrong, logs[0]) for key in ("loss", "grad_norm")) > 1e-2, "nothing was left to cuBLASLt"


@emulated
@pytest.mark.parametrize("how,precision", some(itertools.product(["slopes", "sums"], ["fp32", "bf16"]), 0, 3))
def test_gradients_left_to_cublaslt(how, precision, compiled, data, tmp_path):
    """The slope of gelu, and the gradients of biases beside those of weights."""
    trainer = compiled("gpt2", "cuda", (("precision", precision),))
    right = train(trainer, data, tmp_path / "right")
    wrong = train(trainer, data, tmp_path / "wrong", environment={"EMULATED_EPILOGUES": how}.items())
    assert wrong[0]["loss"] == right[0]["loss"]
    assert abs(wrong[0]["grad_norm"] - right[0]["grad_norm"]) > 1e-3 * right[0]["grad_norm"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_few_launches(precision, compiled):
    """Of a step but its micro-batches: casts and zeros; all sums of squares, what they say of the rate, the update of all
    parameters, whether they lie one behind the other or, as attention's, among each other."""
    text = (compiled("gpt2", "cuda", (("precision", precision),)).folder / "trainer.c").read_text()
    step = text[text.index("\nvoid run_step("):]
    rest = step[step.index("for (int64_t micro"):step.index("\n}\n")]
    calls = [len(re.findall(r"RT_LAUNCH\(", part)) for part in (step[:step.index(rest)], rest)]
    assert calls[0] == 1 and 3 <= calls[1] <= 4, calls


def test_graph_changes_nothing(compiled, data, tmp_path):
    """The bits are the same in whatever order the queues are worked off, and without a recorded graph."""
    trainer = compiled("chars", "cuda")
    logs = [train(trainer, data, tmp_path / f"{seed}", *options, environment={"EMULATED_SEED": str(seed)}.items())
            for seed, options in [(1, ()), (2, ()), (3, ("--no-graph",))]]
    for log in logs[1:]:
        assert [(line["loss"], line["grad_norm"]) for line in log] == [(x["loss"], x["grad_norm"]) for x in logs[0]]


def test_checkpoints_and_samples_go_both_ways(compiled, data, tmp_path):
    """What one device saves, the other loads, goes on with, evaluates and samples from."""
    gpu, processor = compiled("chars", "cuda"), compiled("chars", "c")
    whole = train(processor, data, tmp_path)
    said = ["--data", data, "--eval-data", data, "--eval-batches", 2]
    for first, second in ((gpu, processor), (processor, gpu)):
        start(first.command(*said, "--steps", 1, "--save", "half", "--overwrite"), tmp_path)
        done = start(second.command(*said, "--steps", STEPS, "--load", "half", "--save", "end", "--log", "rest", "--overwrite"), tmp_path)
        assert_same(read_log(tmp_path / "rest"), whole[1:], "fp32")  # the last also depends on the moments that were loaded
        losses = [float(re.search(r"eval loss ([\d.]+)", start(trainer.command(
            "--steps", 0, "--load", "end", *said[2:]), tmp_path).stdout)[1]) for trainer in (first, second)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        samples = [[start(trainer.command("--steps", 0, "--load", "end", "--sample", 12, "--seed", seed), tmp_path).stdout
                    for trainer in (first, second)] for seed in (7, 8, 9)]
        # Rounding may let two characters that are about equally likely change places.
        assert sum(one == other for one, other in samples) >= 2


@emulated
def test_one_micro_batch_is_recorded(compiled, data, tmp_path):
    """However many a step has: graphs are no larger, and the losses are a processor's.  With dropout, each has its own
    masks."""
    nodes = {}
    for micros in (1, 4):
        settings = (("batch", 2 * micros), ("microbatch", 2))
        logs = [train(compiled("bert", target, settings), data, tmp_path / f"{target}{micros}", environment={"EMULATED_NODES": "nodes"}.items())
                for target in ("c", "cuda")]
        assert_same(logs[1], logs[0], "fp32")
        nodes[micros] = int((tmp_path / f"cuda{micros}" / "nodes").read_text().split()[0])
    assert nodes[4] <= nodes[1], nodes


def peak_of(compiled, data, directory, environment):
    """What the trainer says of the best product: its size, Tflop/s, what is used; and the utilisations of the steps."""
    done = start(compiled("chars", "cuda").command("--data", data, "--data-format", "bytes", "--steps", 2, "--log", "log", "--overwrite"),
                 directory, environment={**environment, "MPC_PEAK_FLOPS": "0"}.items())
    said = re.search(r"best product: (\S+) Tflop/s in f32, (\d+) x \d+(.*); mfu is of what (.*)", done.stderr)
    return int(said[2]), float(said[1]), said[3], said[4], read_log(directory / "log")


@emulated
def test_peak(compiled, data, tmp_path):
    """The time in which cuBLASLt loads a kernel is no part of a product's, and does not end the measurement at the smallest
    one.  A measurement far from the data sheet is not believed."""
    for _ in range(5):  # on a processor that others use as well, the smallest one may be the best by chance
        size, measured, sheet, used, log = peak_of(compiled, data, tmp_path, {"EMULATED_LOAD": "150"})
        if size > 128:
            break
    assert size > 128 and (sheet, used) == ("", "was measured")
    flops = json.loads((compiled("chars", "cuda").folder / "plan.json").read_text())["work"]["flops_per_step"]
    assert log[-1]["mfu"] == pytest.approx(flops / (log[-1]["step_ms"] / 1e3) / (measured * 1e12), abs=1e-4)
    *_, sheet, used, log = peak_of(compiled, data, tmp_path, {"EMULATED_NAME": "NVIDIA H200"})
    assert (sheet, used) == (", by the data sheet 67", "the data sheet says")
    assert log[-1]["mfu"] == 0, "a processor's share of it, with four digits"


def test_trace(compiled, data, tmp_path):
    train(compiled("chars", "cuda"), data, tmp_path, "--trace", "trace.json", "--trace-steps", 2)
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    steps = [e for e in events if e["cat"] == "step"]
    assert len(steps) == 2 and {"product", "attend", "fused", "update"} <= {e["cat"] for e in events}
    for event in events:
        assert any(s["ts"] <= event["ts"] and event["ts"] + event["dur"] <= s["ts"] + s["dur"] + 1 for s in steps)
