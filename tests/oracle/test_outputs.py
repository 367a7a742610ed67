"""--outputs: what the model computes for each record is what PyTorch computes with the weights of the checkpoint, on every
layout; which records, which files, and what is refused."""
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
import torch
from common import BUILD, compile_model, read_safetensors, train

RECORDS, BATCH = 21, 8  # the last call has 5 records

MODEL = """
dim batch
dim column = 6
dim embed  = 8
dim ff     = 12
dim class  = 5 padded 6
dim side   = 2
dim rest   = 4

block layer(x: [batch, embed]) {
    param w_up   : [embed, ff] = normal(0.4)
    param w_down : [ff, embed] = normal(0.4)
    return x + dot(dropout(silu(dot(rmsnorm(x, embed), w_up, embed)), 0.3), w_down, ff)
}

model table {
    input value : f32[batch, column]
    input known : bool[batch, column]
    input label : i32[batch]

    param fill  : [column]        = normal(0.5)
    param w_in  : [column, embed] = normal(0.5)
    param w_out : [embed, class]  = normal(0.5)

    x = dot(where(known, value, fill), w_in, column)
    repeat 4 { x = layer(x) as h }
    scores = dot(x, w_out, embed)
    loss mean(cross_entropy(scores, label, class))
    OUTPUTS
}

train {
    optimizer = sgd(lr = 0.1)
    schedule  = constant(warmup = 0)
    batch     = 8
    seed      = 3
    SETTINGS
}
"""
OUTPUTS = """output scores
    output best = top_k(scores, class, 1 -> k)[k = 0]
    output sure = softmax(scores, class) > 0.5
    output turned : [embed, batch] = x
    output parts = split(x, embed -> (side, rest))"""
LAYOUTS = {
    "one": "",
    "dp": "mesh dp = 2\nshard batch over dp",
    "micro": "mesh dp = 2\nshard batch over dp\nzero 3 over dp",
    "tp": "mesh tp = 2\nshard ff, class over tp else embed",
    "pp": "mesh pp = 2\npipeline h over pp",
    "chunks": "mesh pp = 2\npipeline h over pp, schedule = interleaved, chunks = 2",
    "both": "mesh dp = 2, tp = 2\nshard batch over dp\nshard ff, embed over tp",
    "only": "mesh tp = 2\nshard side over tp",  # which no value has that is trained
    "disk": "offload optimizer, params to disk",
}


def model_of(layout="", outputs=OUTPUTS, settings=""):
    parallel = f"parallel {{\n{layout}\n}}\n" if layout else ""
    return MODEL.replace("OUTPUTS", outputs).replace("SETTINGS", settings) + parallel


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """(the folder, the arrays): of the records that a run is given."""
    folder, draw = tmp_path_factory.mktemp("records"), np.random.default_rng(4)
    arrays = {"value": draw.standard_normal((RECORDS, 6)).astype(np.float32), "known": draw.random((RECORDS, 6)) < 0.7,
              "label": draw.integers(0, 5, RECORDS)}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder, arrays


def given(records, *names, option="--data"):
    return [word for name in names for word in (option, f"{name}={records[0] / name}.npy")]


def run(out, ranks, *options, status=0):
    """The trainer on so many ranks; gives what the first one says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [[out / "trainer", *options] + (["--rank", n, "--ranks", ranks, "--master", f"127.0.0.1:{port}"] if ranks > 1 else [])
             for n in range(ranks)]
    started = [subprocess.Popen([str(word) for word in one], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}) for one in words]
    said = [one.communicate(timeout=300)[0] for one in started]
    assert [one.returncode for one in started] == [status] * ranks, "\n".join(said)
    return said[0]


def expected(weights, arrays, prefix=""):
    """The outputs in PyTorch, in double precision."""
    w = {name: torch.from_numpy(np.array(value)).double() for name, value in weights.items()}
    x = torch.where(torch.from_numpy(arrays["known"]), torch.from_numpy(arrays["value"]).double(), w[prefix + "fill"]) @ w[prefix + "w_in"]
    for n in range(4):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
        x = x + torch.nn.functional.silu(y @ w[f"{prefix}h.{n}.w_up"]) @ w[f"{prefix}h.{n}.w_down"]
    scores = x @ w[prefix + "w_out"]
    return {"scores": scores.numpy(), "best": scores.argmax(-1).numpy(), "sure": (scores.softmax(-1) > 0.5).numpy(), "turned": x.numpy(),
            "parts": x.reshape(-1, 2, 4).numpy()}


def check(folder, wanted, tolerance=1e-5):
    kinds = {"scores": "f4", "best": "i4", "sure": "?", "turned": "f4", "parts": "f4"}
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.npy" for name in wanted)
    for name, value in wanted.items():
        found = np.load(folder / f"{name}.npy")
        assert found.dtype == np.dtype(kinds[name]) and found.shape == value.shape, name
        np.testing.assert_allclose(found.astype(float), value.astype(float), atol=tolerance, rtol=0, err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, records, tmp_path):
    """After two steps, in another order than that of the records; and again from the checkpoint, without labels."""
    ranks = {"one": 1, "disk": 1, "both": 4}.get(layout, 2)
    out = compile_model(model_of(LAYOUTS[layout], settings="microbatch = 4"), tmp_path, *["--comm=tcp"] * (ranks > 1))
    run(out, ranks, *given(records, "value", "known", "label"), "--steps", 2, "--save", tmp_path / "end.safetensors", "--outputs", tmp_path / "now")
    wanted = expected(read_safetensors(tmp_path / "end.safetensors"), records[1])
    check(tmp_path / "now", wanted)
    said = run(out, ranks, *given(records, "value", "known"), "--load", tmp_path / "end.safetensors", "--steps", 0, "--outputs", tmp_path / "then")
    check(tmp_path / "then", wanted)
    assert re.search(r"^wrote \S+/then/scores.npy: 21 records of --data$", said, re.M)


@pytest.fixture(scope="module")
def trained(records, tmp_path_factory):
    """(the folder of a trainer, its checkpoint)"""
    folder = tmp_path_factory.mktemp("trained")
    out = compile_model(model_of(settings="ema = 0.5"), folder)
    train(out, *given(records, "value", "known", "label"), "--steps", 3, "--save", folder / "end.safetensors")
    return out, folder / "end.safetensors"


def test_mean_of_weights(trained, records, tmp_path):
    out, end = trained
    run(out, 1, *given(records, "value", "known"), "--load", end, "--steps", 0, "--ema", "--outputs", tmp_path / "mean")
    check(tmp_path / "mean", expected(read_safetensors(end), records[1], "optimizer.ema."))


def test_which_records(trained, records, tmp_path):
    """Those of --eval-data where there are any; all of --data, whatever is held out of them."""
    out, end = trained
    few = {name: array[:3] for name, array in records[1].items()}
    for name, array in few.items():
        np.save(tmp_path / f"{name}.npy", array)
    weights = read_safetensors(end)
    rest = ["--load", end, "--weights-only", "--steps", 1, "--overwrite"]
    test = given((tmp_path, few), "value", "known", "label", option="--eval-data")
    run(out, 1, *given(records, "value", "known", "label"), *test, *rest, "--save", tmp_path / "w", "--outputs", tmp_path / "few")
    check(tmp_path / "few", expected(read_safetensors(tmp_path / "w"), few))
    run(out, 1, *given(records, "value", "known", "label"), "--eval-fraction", 0.4, *rest, "--save", tmp_path / "w", "--outputs", tmp_path / "all")
    check(tmp_path / "all", expected(read_safetensors(tmp_path / "w"), records[1]))
    run(out, 1, *given((tmp_path, few), "value", "known"), "--load", end, "--steps", 0, "--outputs", tmp_path / "alone")
    check(tmp_path / "alone", expected(weights, few))
    said = run(out, 1, *test, "--load", end, "--steps", 0, "--outputs", tmp_path / "evaluated")  # both
    check(tmp_path / "evaluated", expected(weights, few))
    assert "eval_loss" in said or "eval loss" in said, said


def test_files(trained, records, tmp_path):
    """An array is replaced with --overwrite, a file of another kind never, nor one that is read."""
    out, end = trained
    what = [*given(records, "value", "known"), "--load", end, "--steps", 0, "--outputs", tmp_path]
    run(out, 1, *what)
    before = (tmp_path / "best.npy").read_bytes()
    assert "scores.npy: the file already exists and would be lost; give another folder, or give --overwrite" in run(out, 1, *what, status=1)
    run(out, 1, *what, "--overwrite")
    assert (tmp_path / "best.npy").read_bytes() == before
    (tmp_path / "sure.npy").write_text("mine")
    assert "sure.npy: the file there is no NumPy array, and is not replaced" in run(out, 1, *what, "--overwrite", status=1)
    assert (tmp_path / "sure.npy").read_text() == "mine"
    np.save(tmp_path / "scores.npy", records[1]["value"])
    said = run(out, 1, "--data", f"value={tmp_path / 'scores.npy'}", *what[2:-1], tmp_path, "--overwrite", status=2)
    assert "are the same file" in said
    assert "cannot make the folder" in run(out, 1, *what[:-1], tmp_path / "no" / "such", status=1)


def test_refused(records, tmp_path):
    out = compile_model(model_of(outputs=""), tmp_path)
    said = run(out, 1, *given(records, "value", "known", "label"), "--steps", 0, "--outputs", tmp_path / "o", status=2)
    assert "names no output: write 'output NAME' in it" in said and not (tmp_path / "o").exists()
    assert "--outputs has no effect without --data or --eval-data" in run(out, 1, "--steps", 0, "--outputs", tmp_path / "o", status=2)


def test_bad_data(trained, records, tmp_path):
    """Before training, and nothing is written."""
    out, end = trained
    bad = records[1]["value"].copy()
    bad[20, 3] = np.nan
    np.save(tmp_path / "value.npy", bad)
    said = run(out, 1, "--data", f"value={tmp_path / 'value.npy'}", *given(records, "known"), "--load", end, "--steps", 0, "--outputs", tmp_path / "o",
               status=1)
    assert "at [20, 3] is not a finite number" in said and not list((tmp_path / "o").iterdir())


def test_signal(records, tmp_path):
    """No file is left of outputs that are not whole."""
    out = compile_model(model_of(), tmp_path)
    for name in ("value", "known"):
        np.save(tmp_path / f"{name}.npy", np.tile(records[1][name], (60000, 1)))
    words = [out / "trainer", *given((tmp_path, None), "value", "known"), "--steps", 0, "--outputs", tmp_path / "o"]
    started = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "o").exists() or not list((tmp_path / "o").glob("scores.npy.tmp")) or (tmp_path / "o/scores.npy.tmp").stat().st_size == 0:
        time.sleep(0.01)
    started.send_signal(signal.SIGTERM)
    said = started.communicate(timeout=300)[1]
    assert started.returncode == 128 + signal.SIGTERM and "was interrupted, and has written nothing" in said, said
    assert not list((tmp_path / "o").iterdir())


def steps_of(text):
    """The functions of a trainer that train and evaluate, with what kernels do in place of their names, and without places in the
    arena, which has inputs more."""
    kernels = {name: " ".join((head + body).split())
               for name, head, body in re.findall(r"^static void (kernel_\w+)(\(.*?\))\s(\{[^\n]*\}$|\{.*?^\})", text, re.M | re.S)}
    found = {}
    for name, body in re.findall(r"^(?:static )?void run_(step|eval|table|h\w*)\(.*?\)\n(\{.*?^\})", text, re.M | re.S):
        body = re.sub(r"(arena \+ (?:rt_at\(rt, &\w+, )?)\d+", r"\1N", " ".join(body.split()))
        found[name] = re.sub(r"\bkernel_\w+", lambda match: kernels[match[0]], body)
    return found


@pytest.mark.parametrize("layout", ["one", "pp"])
def test_training_is_the_same(layout, records, tmp_path):
    """With outputs at the end of the model, a step is compiled to the same text."""
    texts = []
    for name, outputs in (("with", OUTPUTS + "\n    output dropped = 1 + dropout(x, 0.5)"), ("without", "")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.mdl").write_text(model_of(LAYOUTS[layout], outputs))
        subprocess.run([BUILD / "mpc", "compile", "model.mdl", "-o", ".", "--no-cc"], cwd=folder, check=True, capture_output=True)
        texts.append(steps_of((folder / "trainer.c").read_text()))
    assert {"step", "eval"} < set(texts[1]) and {name: texts[0].get(name) for name in texts[1]} == texts[1]


TOKENS = """
dim batch
dim seq   = 8
dim vocab = 16
dim heads = 2
dim head  = 4
dim embed = 8

model lm {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte    : [vocab, embed]       = normal(0.5)
    param wq, wk : [embed, heads, head] = normal(0.5)
    param wo     : [heads, head, vocab] = normal(0.5)
    x = wte[vocab = tokens]
    q = rope(dot(x, wq, embed), seq, head)
    k = rope(dot(x, wk, embed), seq, head)
    output logits = dot(attend(q, k, k, seq, head, causal = true), wo, heads, head)
    output after : i32[batch, seq] = labels
    output first : [batch] = logits[seq = 0][vocab = 0]
    loss mean(cross_entropy(logits, labels, vocab))
}

train {
    batch     = 4
    precision = PRECISION
}
"""


def logits_of(weights, tokens):
    w = {name: torch.from_numpy(np.array(value)).double() for name, value in weights.items()}
    x = w["wte"][torch.from_numpy(tokens)]
    turn = torch.arange(8)[:, None] * 10000.0 ** (-torch.arange(2) / 2)

    def rope(y):
        a, b = y[..., :2], y[..., 2:]
        cos, sin = (f(turn).double()[:, None] for f in (torch.cos, torch.sin))
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    q, k = (rope(torch.einsum("bse,ehd->bshd", x, w[name])) for name in ("wq", "wk"))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2 + torch.full((8, 8), -torch.inf).triu(1)
    return torch.einsum("bhqk,bkhd,hdv->bqv", scores.softmax(-1), k, w["wo"]).numpy()


@pytest.mark.parametrize("layout, precision", [("", "fp32"), ("mesh cp = 2\nshard seq over cp", "fp32"), ("", "bf16"),
                                               ("mesh tp = 2\nshard heads, vocab over tp else seq", "fp32")])
def test_tokens(layout, precision, tmp_path):
    """A record is a sequence of the stream; what is computed in halves is written as f32."""
    stream = np.random.default_rng(6).integers(0, 16, 11 * 8 + 4).astype(np.uint16)
    stream.tofile(tmp_path / "tokens.bin")
    out = compile_model(TOKENS.replace("PRECISION", precision) + (f"parallel {{\n{layout}\n}}\n" if layout else ""), tmp_path, *["--comm=tcp"] * bool(layout))
    said = run(out, 2 if layout else 1, "--data", tmp_path / "tokens.bin", "--data-format", "u16", "--steps", 1, "--save", tmp_path / "w", "--outputs",
               tmp_path / "o")
    logits, first, after = (np.load(tmp_path / "o" / f"{name}.npy") for name in ("logits", "first", "after"))
    wanted = logits_of({name: value for name, value in read_safetensors(tmp_path / "w").items() if "optimizer" not in name}, stream[:88].reshape(11, 8).astype(int))
    assert logits.dtype == np.float32 and "logits.npy: 11 sequences of --data" in said
    np.testing.assert_allclose(logits, wanted, atol=1e-5 if precision == "fp32" else 0.1)
    assert (logits[:, 0, 0] == first).all() and (after == stream[1:89].reshape(11, 8)).all()
