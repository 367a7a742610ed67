"""packaging/tokens.py and packaging/wandb_log.py: text into a trainer and out of it, and its log to Weights & Biases, where
`make bridges` has installed the libraries."""
import json
import os
import subprocess

import numpy as np
import pytest
from conftest import ROOT

PYTHON = ROOT / os.environ.get("BUILD", "build") / "bridges/bin/python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no tokenizers and wandb: make bridges")
WORDS = ["a", "b", "c", "d", *(f"w{i}" for i in range(296))]
MODEL = """dim batch
dim seq   = 6
dim vocab = 300
dim embed = 16
model m {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param table : [vocab, embed] = normal(0.3)
    param out   : [embed, vocab] = normal(0.3)
    loss mean(cross_entropy(dot(table[vocab = tokens], out, embed), labels, vocab))
}
train {
    optimizer = adamw(lr = 0.1, weight_decay = 0)
    batch     = 8
}
"""
READ = """
import glob, json, struct
from wandb.proto import wandb_internal_pb2

def records(data, at=7):  # blocks of 32 KiB of pieces with a checksum, a length, and whether it is whole, first, middle or last
    whole = b""
    while at + 7 <= len(data):
        if at % 32768 > 32768 - 7:
            at += 32768 - at % 32768
        _, length, kind = struct.unpack("<IHB", data[at:at + 7])
        whole = (b"" if kind in (1, 2) else whole) + data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole

for data in records(open(glob.glob("wandb/offline-run-*/*.wandb")[0], "rb").read()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    if record.WhichOneof("record_type") == "history":
        items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        print(json.dumps(items))
"""


def bridge(folder, script, *options, given=b"", status=0):
    run = subprocess.run([str(word) for word in (PYTHON, ROOT / "packaging" / script, *options)], input=given, cwd=folder,
                         capture_output=True, timeout=300, env={**os.environ, "PYTHONPATH": str(folder)})
    assert run.returncode == status, run.stderr.decode()
    return run.stderr if status else run.stdout


@pytest.fixture
def tokenizer(tmp_path):
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None, "model": model}))
    return "tokenizer.json"


def test_text_in_and_out(mpc, tokenizer, tmp_path):
    """A model that has seen nothing but `a b c d` says how it goes on."""
    numbers = bridge(tmp_path, "tokens.py", tokenizer, "encode", "--end", 7, given=b"a b c d " * 200)
    assert np.frombuffer(numbers, "<u2").tolist() == [0, 1, 2, 3] * 200 + [7]
    (tmp_path / "tokens.u16").write_bytes(numbers)
    (tmp_path / "m.mdl").write_text(MODEL)
    subprocess.run([ROOT / os.environ.get("BUILD", "build") / "mpc", "compile", "m.mdl", "-o", "out"], cwd=tmp_path, check=True,
                   capture_output=True, timeout=300)
    prompt = bridge(tmp_path, "tokens.py", tokenizer, "numbers", given=b"c d\n").decode().strip()
    assert bridge(tmp_path, "tokens.py", tokenizer, "numbers", "--begin", 9, given=b"c d\n").decode() == f"9 {prompt}\n"
    begun = np.frombuffer(bridge(tmp_path, "tokens.py", tokenizer, "encode", "--begin", 9, "--end", 7, given=b"c d"), "<u2")
    assert begun.tolist() == [9, *map(int, prompt.split()), 7]
    said = subprocess.run(["out/trainer", "--data", "tokens.u16", "--steps", "40", "--sample", "5", "--temperature", "0",
                           "--prompt", prompt], cwd=tmp_path, check=True, capture_output=True, timeout=300).stdout
    assert bridge(tmp_path, "tokens.py", tokenizer, "text", given=said.splitlines()[-1]) == b"c d a b c d a\n"


SENTENCES = b"the hen saw the fox\nthe fox saw the hen\na fox and a hen\n"
PIECES = """
import sentencepiece
sentencepiece.SentencePieceTrainer.train(input="text", model_prefix="pieces", vocab_size=30, hard_vocab_limit=False, minloglevel=2)
"""
ENCODING = """
def bytes_alone():
    return dict(name="bytes_alone", pat_str="[a-z]+|[^a-z]", mergeable_ranks={bytes([i]): 255 - i for i in range(256)},
                special_tokens={})
ENCODING_CONSTRUCTORS = {"bytes_alone": bytes_alone}
"""


def test_tokenizers_of_other_kinds(tmp_path):
    (tmp_path / "text").write_bytes(SENTENCES)
    subprocess.run([PYTHON, "-c", PIECES], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    (tmp_path / "tiktoken_ext").mkdir()
    (tmp_path / "tiktoken_ext" / "own.py").write_text(ENCODING)
    text = SENTENCES.splitlines()[0]
    for tokenizer in ("pieces.model", "tiktoken:bytes_alone"):
        numbers = bridge(tmp_path, "tokens.py", tokenizer, "numbers", given=text)
        packed = np.frombuffer(bridge(tmp_path, "tokens.py", tokenizer, "encode", given=text), "<u2").tolist()
        assert packed == [int(number) for number in numbers.split()] and len(packed) > 3
        assert bridge(tmp_path, "tokens.py", tokenizer, "text", given=numbers) == text + b"\n"
    assert packed == [255 - c for c in text]


def test_tokenizers_that_cannot_be_read(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n")
    said = [bridge(tmp_path, "tokens.py", name, "numbers", status=1).decode()
            for name in ("tokenizer.model", "none.model", "tiktoken:unheard_of")]
    assert "does not say how text is cut into words: give the tokenizer.json" in said[0]
    assert "cannot read none.model" in said[1] and "cannot read tiktoken:unheard_of" in said[2]


def test_log_in_weights_and_biases(tmp_path):
    lines = [dict(step=t, loss=3 / t, grad_norm=None if t == 2 else 1.5, expert_load=[1.0, 1.0 + t]) for t in range(1, 6)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9')
    bridge(tmp_path, "wandb_log.py", "log.jsonl", "--project", "p", "--name", "n")
    run = subprocess.run([PYTHON, "-c", READ], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    entries = [json.loads(line) for line in run.stdout.splitlines()]
    assert [entry["_step"] for entry in entries] == [1, 2, 3, 4, 5]
    for entry, line in zip(entries, lines):
        assert entry["loss"] == line["loss"] and entry["expert_load/1"] == line["expert_load"][1]
        assert entry.get("grad_norm") == line["grad_norm"]
