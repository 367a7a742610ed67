"""Bytes that a GPU copies to make messages contiguous, from the types that the report names."""
import json
import math
import re

import pytest

from conftest import MPC, ROOT, run

BYTES = {"bf16": 2, "f32": 4}
SIZES = ["-Dlayers=2", "-Dseq=64", "-Dembed=32", "-Dkv_heads=4", "-Dgroup=2", "-Dhead=4", "-Dff=64", "-Dvocab=64"]


def dims_of(text, mesh):
    """[(name, elements of a rank)] of a type such as bf16[batch:4/dp, seq:64/tp]."""
    found = []
    for dim in re.match(r"\w+\[(.*?)\]", text)[1].split(", "):
        name, rest = dim.split(":")
        size, *axes = rest.split("/")
        found.append((name, int(size) // math.prod(mesh[axis] for axis in axes if axis in mesh)))
    return found


def packed(row, mesh):
    """Of an all_gather or reduce_scatter: all of the larger tensor, if dims before the one that is split have several elements."""
    first = row["first"]
    whole, part = (first["to"], first["from"]) if row["collective"] == "all_gather" else (first["from"], first["to"])
    large, small = dims_of(whole, mesh), dims_of(part, mesh)
    at = next(i for i, (a, b) in enumerate(zip(large, small)) if a != b)
    several = math.prod(size for _, size in large[:at]) > 1
    return row["tensors"] * BYTES[row["dtype"]] * math.prod(size for _, size in large) if several else 0


MESH = {"dp": 2, "tp": 2}


def messages_of(folder, micro, pieces, target="cuda"):
    """Those over tp that have parts of tensors, by rows of the report."""
    text = (ROOT / "examples/llama.mdl").read_text().replace("over tp else seq", f"over tp else seq (overlap = {pieces})")
    (folder / "m.mdl").write_text(text)
    said = run(MPC, "report", folder / "m.mdl", *SIZES, "--mesh=dp=2,tp=2", "--zero=0", "--set=train.batch=8",
               f"--set=train.microbatch={micro}", f"--target={target}", "--json").stdout
    rows = json.loads(said)["communication"]["collectives"]
    return [row for row in rows if row["axes"] == "tp" and row["collective"] in ("all_gather", "reduce_scatter")]


@pytest.mark.parametrize("micro", [1, 4])
def test_packed_bytes(tmp_path, micro):
    """One sequence is contiguous; of several, what is gathered comes first in memory."""
    rows = messages_of(tmp_path, micro, 1)
    assert len(rows) > 5
    assert not any(row["packed"] or packed(row, MESH) for row in rows)
    assert not any("packed" in row for row in messages_of(tmp_path, micro, 1, "c"))


def test_pieces_of_sequences(tmp_path):
    """Where pieces are some of the sequences, single ones of these are contiguous.  What gradients of weights read still is whole."""
    rows = {pieces: messages_of(tmp_path, 4, pieces) for pieces in (2, 4)}
    of = {pieces: {cause: [row for row in rows[pieces] if row["cause"] == cause] for cause in ("sequence.add", "sequence.dot")} for pieces in rows}
    for row in of[2]["sequence.add"]:
        assert row["packed"] == packed(row, MESH) > 0
    assert sum(row["packed"] for row in of[4]["sequence.add"]) == 0
    assert 0 < sum(row["packed"] for row in of[4]["sequence.dot"]) < sum(row["packed"] for row in of[2]["sequence.dot"])
