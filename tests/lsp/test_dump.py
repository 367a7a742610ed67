"""Dumps of the IR: costs of ops, the lines that they come from."""
import json
import re
import subprocess

import pytest
from lsprotocol import types as lsp

from client import MPC, ROOT, Session, part_at, place


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "gpt2.mdl").write_text((ROOT / "examples/gpt2.mdl").read_text())
    subprocess.run([MPC, "compile", "gpt2.mdl", "--mesh", "dp=2,tp=2", "--no-cc", "-o", "out", "--dump-ir=out/ir"], cwd=folder,
                   check=True, capture_output=True)
    return folder


def opened(session, path):
    text = path.read_text()
    assert session.open(text, f"file://{path}") == ()
    return text, f"file://{path}"


def test_costs_of_all_products_are_those_of_the_report(session, dumps):
    """FLOPs of a step: the products and attentions of the final program, by hover of each."""
    text, uri = opened(session, next((dumps / "out/ir").glob("*-memory.mir")))
    total = {"flop": 0.0, "sent": 0.0}
    units = {"FLOP": 1, "kFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15,
             "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    for number, line in enumerate(text.split("\n")):
        op = re.match(r" *%[^=]*= (\w+) ", line)
        if not op or op.group(1) not in ("dot", "attend", "attend_grad", "all_reduce", "all_gather", "reduce_scatter"):
            continue
        shown = session.at("text_document_hover", (number, op.start(1)), uri=uri).contents.value
        assert f"`{op.group(1)}` of" in shown
        for what, count, unit in re.findall(r"^(?:(sends) )?[\d.]+ \w+(?:, [\d.]+ times in a step: ([\d.]+) (\w+))?$", shown, re.M):
            if count:
                total["sent" if what else "flop"] += float(count) * units[unit]
    said = json.loads(subprocess.run([MPC, "report", "gpt2.mdl", "--mesh", "dp=2,tp=2", "--json"], cwd=dumps, check=True,
                                     capture_output=True, text=True).stdout)
    parts = said["work"]["rank_parts"]
    assert total["flop"] == pytest.approx(parts["products"] + parts["attention and gathers"], rel=0.01)
    assert total["sent"] == pytest.approx(said["communication"]["sent"], rel=0.01)


def test_definitions(session, dumps):
    text, uri = opened(session, next((dumps / "out/ir").glob("*-lower.mir")))
    model = (dumps / "gpt2.mdl").read_text().split("\n")
    number = next(i for i, line in enumerate(text.split("\n")) if "= dot" in line and "loc(h.attn.q " in line)
    line = text.split("\n")[number]
    found = session.at("text_document_definition", (number, line.index("loc(")), uri=uri)
    assert found.uri == f"file://{dumps / 'gpt2.mdl'}"
    assert model[found.range.start.line][found.range.start.character:].startswith("dot(x, wq, embed)")
    operand = re.search(r"dot (%[\w.]+)", line)
    defined = session.at("text_document_definition", (number, operand.start(1) + 1), uri=uri)
    assert part_at(text, defined.range) == operand.group(1) and defined.range.start.line < number


def test_functions_are_symbols(session, dumps):
    text, uri = opened(session, next((dumps / "out/ir").glob("*-autodiff.mir")))
    symbols = session.ask("text_document_document_symbol", lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(uri)))
    assert [s.name for s in symbols] == re.findall(r"^  func (?:\w+ )?@([\w.]+)", text, re.M)


def test_errors_of_a_dump(session, dumps):
    path = next((dumps / "out/ir").glob("*-lower.mir"))
    text = path.read_text().replace("= dot ", "= dott ", 1)
    notes = session.open(text, f"file://{path}")
    assert len(notes) == 1 and notes[0].range.start.line == text[:text.index("= dott ")].count("\n")
    assert session.at("text_document_hover", place(text, "= dott "), uri=f"file://{path}") is None
