"""Inlay hints, and what a mesh makes of names."""
import collections
import json
import re
import subprocess

import pytest
from lsprotocol import types as lsp

from client import MPC, ROOT, URI, Session, a_range, place

IDENTIFIER = lsp.TextDocumentIdentifier(URI)
MESHES = [("gpt2", "dp=2,tp=2"), ("gpt2", "dp=2,pp=2"), ("llama", "dp=2,cp=2"), ("mixtral", "dp=2,tp=2"), ("lstm", "dp=4")]


def session_on(mesh, example, *options):
    text = (ROOT / f"examples/{example}.mdl").read_text()
    session = Session(*(["--mesh", mesh] if mesh else []), *options)
    assert not [n for n in session.open(text) if n.severity == lsp.DiagnosticSeverity.Error]
    return session, text


def hints(session, text):
    return session.hints(text)


def causes(found):
    """Bytes by axes and collective, and lines."""
    sent, lines = collections.Counter(), set()
    for hint in found:
        for name, axes, count in re.findall(r"^(\w+) over ([\w+.]+): ([\d,]+) bytes", hint.tooltip or "", re.M):
            sent[name, axes] += int(count.replace(",", ""))
            lines.add(hint.position.line)
    return sent, lines


@pytest.mark.parametrize("example, mesh", MESHES, ids=[f"{e}-{m}" for e, m in MESHES])
def test_messages_of_lines_are_those_of_the_report(example, mesh):
    """The sum over all lines is what mpc report counts, but for bytes that each hint rounds."""
    session, text = session_on(mesh, example)
    sent, lines = causes(hints(session, text))
    said = subprocess.run([MPC, "report", ROOT / f"examples/{example}.mdl", "--mesh", mesh, "--json"], capture_output=True,
                          text=True, check=True).stdout
    expected = collections.Counter()
    for row in json.loads(said)["communication"]["collectives"]:
        expected[row["collective"], row["axes"]] += row["sent"]
    expected = {key: count for key, count in expected.items() if count > 0}
    assert sent.keys() == expected.keys() and len(lines) > 1
    for key, count in expected.items():
        assert sent[key] == pytest.approx(count, abs=len(text.split("\n")) / 2)
    assert session.close() == 0


def test_a_line_has_its_own_messages():
    """Tensor parallelism with `else seq`: the line that multiplies gathers the sequence, the line that adds scatters."""
    session, text = session_on("tp=4", "gpt2")
    lines = text.split("\n")
    found = {lines[h.position.line].strip(): h.label for h in hints(session, text) if h.kind is None}
    product = next(label for line, label in found.items() if line.startswith("q = dot(x, wq"))
    assert "all_gather tp" in product
    assert "reduce_scatter tp" in found["return dot(y, wo, heads, head) + bo"]
    assert not any(line.startswith(("const", "dim", "model")) for line in found)
    assert session.close() == 0


def test_one_rank_sends_nothing():
    session, text = session_on(None, "gpt2")
    found = hints(session, text)
    assert causes(found) == (collections.Counter(), set()) and found
    assert session.close() == 0


def test_types_of_assignments(session):
    text = (ROOT / "examples/gpt2.mdl").read_text()
    session.open(text)
    lines = text.split("\n")
    found = {lines[h.position.line].strip(): h.label for h in hints(session, text)}
    assert found["q = dot(x, wq, embed) + bq"] == ": [batch, seq, heads, head]"
    assert found["logits = dot(norm(x) as ln_f, wte, embed)"] == ": [batch, seq, vocab]"
    for hint in hints(session, text):  # behind the name
        assert re.match(r"\s*(repeat layers \{ )?\w+$", lines[hint.position.line][:hint.position.character])


@pytest.mark.parametrize("example", ["gpt2", "lstm", "t5", "vit", "mamba2"])
def test_types_can_be_stated(session, example, tmp_path):
    """Each hint is what may stand there: the model with all of them is right, and then has no hints."""
    text = (ROOT / f"examples/{example}.mdl").read_text()
    session.open(text)
    lines = text.split("\n")
    for hint in sorted(hints(session, text), key=lambda h: (h.position.line, h.position.character), reverse=True):
        before, after = lines[hint.position.line][:hint.position.character], lines[hint.position.line][hint.position.character:]
        if after.lstrip().startswith(",") or re.search(r",\s*\w+$", before) or "..." in hint.label:
            continue  # one of several names, or of several types
        lines[hint.position.line] = before + " " + hint.label + after
    stated = "\n".join(lines)
    assert stated != text and session.change(stated) == ()


def hover(session, text, part):
    return session.at("text_document_hover", place(text, part)).contents.value


def test_hover_shows_splits_and_bytes():
    session, text = session_on("dp=2,tp=4", "gpt2", "--zero", "0")
    hints(session, text)  # waits for the layout
    shown = hover(session, text, "wq, wk")
    assert "heads:12/tp" in shown and "on 8 ranks" in shown
    # 12 layers of 768 x 12 x 64 numbers of 4 bytes, in four parts
    assert "7.08 MB on each" in shown and 12 * 768 * 12 * 64 * 4 / 4 == 7_077_888
    value = hover(session, text, "logits = dot")
    assert re.search(r"seq:1024, batch:16/dp, vocab:50257~\d+/tp", value), value
    assert session.close() == 0


def test_a_mesh_that_the_model_cannot_have_gives_no_messages():
    """Heads are no multiple of five ranks: the layout is refused or padded, and the server goes on."""
    session = Session("--mesh", "dp=2,tp=5")
    text = (ROOT / "examples/gpt2.mdl").read_text()
    session.open(text)
    assert isinstance(hints(session, text), tuple)
    assert session.close() == 0
