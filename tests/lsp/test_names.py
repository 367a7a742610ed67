"""Definition, references, rename, symbols, formatting, hover."""
import re
import subprocess

import pytest
from lsprotocol import types as lsp

from client import MPC, ROOT, URI, Session, applied, part_at, place

EXAMPLES = sorted(ROOT.glob("examples/*.mdl"))
GPT2 = (ROOT / "examples/gpt2.mdl").read_text()
IDENTIFIER = lsp.TextDocumentIdentifier(URI)


def definition(session, text, part, nth=0):
    found = session.at("text_document_definition", place(text, part, nth))
    return found and (found.range.start.line, part_at(text, found.range))


def line(text, part):
    return text[:text.index(part)].count("\n")


@pytest.mark.parametrize("part, nth, declared", [
    ("wq, embed", 0, "param wq, wk"),
    ("embed) + bq", 0, "dim embed"),
    ("layers {", 0, "const layers"),
    ("layer(x) as", 0, "block layer"),
    ("x + attention", 0, "block layer"),
    ("x + mlp", 0, "x = x + attention"),     # the last assignment before it
    ("norm(x) as ln_f", 0, "block norm"),
    ("x) as ln_f", 0, "repeat layers"),     # assigned in the repeat
    ("tokens] +", 0, "input tokens"),
    ("h over pp", 0, "repeat layers"),       # an instance
    ("tp else", 0, "mesh  dp"),
    ("ff, vocab over", 0, "dim ff"),
])
def test_definitions(session, part, nth, declared):
    session.open(GPT2)
    found = definition(session, GPT2, part, nth)
    assert found and found[0] == line(GPT2, declared)
    assert found[1] == re.match(r"\w+", GPT2[GPT2.index(part):]).group()


def test_keywords_have_no_definition(session):
    session.open(GPT2)
    for part in ("repeat", "cosine", "attend(", "bf16", "normal"):
        assert definition(session, GPT2, part) is None


def test_references_are_all_and_only_those_of_the_name(session):
    session.open(GPT2)
    found = session.at("text_document_references", place(GPT2, "wo :"), context=lsp.ReferenceContext(True))
    assert [GPT2.split("\n")[r.range.start.line].strip()[:8] for r in found] == ["param wo", "return d"]
    norms = session.at("text_document_references", place(GPT2, "norm(x:"), context=lsp.ReferenceContext(False))
    assert len(norms) == len(re.findall(r"\bnorm\(x\)", GPT2)) == 3
    marks = session.at("text_document_document_highlight", place(GPT2, "wo :"))
    assert [m.kind for m in marks] == [lsp.DocumentHighlightKind.Write, lsp.DocumentHighlightKind.Read]


def compiled(path, *options):
    done = subprocess.run([MPC, "compile", path, "--compile-to=lower", "-o", path.with_suffix(".mir"), *options],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path.with_suffix(".mir").read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_all_names_renamed_give_the_same_program(session, example, tmp_path):
    """Each declared name is renamed to one as long as itself: the IR is the same but for the names."""
    text = example.read_text()
    session.open(text)
    before = compiled(example_copy(tmp_path, text))
    symbols = session.ask("text_document_document_symbol", lsp.DocumentSymbolParams(IDENTIFIER))
    flat = [s for symbol in symbols for s in [symbol, *(symbol.children or [])]]
    renames, taken = {}, set(re.findall(r"\w+", text))
    for symbol in flat:
        if symbol.name not in renames:
            renames[symbol.name] = next(n for n in (f"{c}{'z' * (len(symbol.name) - 1)}" if len(symbol.name) < 3 else
                                                    f"{c}{d}{'z' * (len(symbol.name) - 2)}"
                                                    for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" for d in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
                                        if n not in taken)
            taken.add(renames[symbol.name])
    for symbol in flat:
        name = renames[symbol.name]
        here = (symbol.selection_range.start.line, symbol.selection_range.start.character)
        edit = session.at("text_document_rename", here, new_name=name)
        text = applied(text, edit.changes[URI])
        session.change(text)
    assert session.notes[URI] == ()
    after = compiled(example_copy(tmp_path, text))
    words = {new: old for old, new in renames.items()}
    assert re.sub(r"[A-Za-z_]\w*", lambda m: words.get(m.group(), m.group()), after) == before


def example_copy(folder, text):
    (folder / "m.mdl").write_text(text)
    return folder / "m.mdl"


def refusal(session, text, part, name):
    from pygls.exceptions import JsonRpcException
    with pytest.raises(JsonRpcException) as error:
        session.at("text_document_rename", place(text, part), new_name=name)
    return error.value.message


def test_renames_that_are_refused(session):
    session.open(GPT2)
    assert "another name" in refusal(session, GPT2, "wq, wk", "wk")
    assert "another name" in refusal(session, GPT2, "wq, wk", "embed")
    assert "not a name" in refusal(session, GPT2, "wq, wk", "repeat")
    assert "not a name" in refusal(session, GPT2, "wq, wk", "a b")
    assert "no name" in refusal(session, GPT2, "cosine", "x")
    assert session.at("text_document_prepare_rename", place(GPT2, "cosine")) is None
    assert part_at(GPT2, session.at("text_document_prepare_rename", place(GPT2, "wq, wk"))) == "wq"
    broken = GPT2.replace("gain + bias", "gain +")
    session.change(broken)
    assert "syntax error" in refusal(session, broken, "wq, wk", "other")


def test_symbols_are_those_of_the_file(session):
    session.open(GPT2)
    symbols = session.ask("text_document_document_symbol", lsp.DocumentSymbolParams(IDENTIFIER))
    declared = re.findall(r"^(?:const|dim|block|model) (\w+)", GPT2, re.M)
    assert [s.name for s in symbols] == declared + ["dp", "tp", "pp"]
    attention = next(s for s in symbols if s.name == "attention")
    assert [c.name for c in attention.children] == ["wq", "wk", "wv", "bq", "bk", "bv", "wo", "bo"]
    assert attention.children[0].detail == "[embed, heads, head]"
    assert part_at(GPT2, attention.range).startswith("block attention") and part_at(GPT2, attention.range).endswith("}")


@pytest.mark.parametrize("change", [lambda t: t, lambda t: t.replace(" = ", "=").replace("    ", "  ")],
                         ids=["formatted", "not"])
def test_formatting_is_that_of_mpc_fmt(session, change, tmp_path):
    text = change(GPT2)
    session.open(text)
    options = lsp.FormattingOptions(tab_size=4, insert_spaces=True)
    edits = session.ask("text_document_formatting", lsp.DocumentFormattingParams(IDENTIFIER, options))
    expected = subprocess.run([MPC, "fmt", example_copy(tmp_path, text)], capture_output=True, text=True).stdout
    assert applied(text, edits) == expected
    assert (edits == ()) == (text == expected)


# --- Hover ---

def hover(session, text, part, nth=0):
    found = session.at("text_document_hover", place(text, part, nth))
    return found and found.contents.value


def test_hover_of_a_parameter_counts_it(session):
    """All elements of parameters, by hover, are as many as mpc check says."""
    session.open(GPT2)
    total = 0
    for names in re.findall(r"param ([\w, ]+?) *:", GPT2):
        for name in names.split(", "):
            at = place(GPT2, f"param {names}")
            text = session.at("text_document_hover", (at[0], at[1] + len("param ") + names.index(name))).contents.value
            total += int(re.search(r"([\d,]+) elements", text).group(1).replace(",", ""))
    said = subprocess.run([MPC, "check", ROOT / "examples/gpt2.mdl"], capture_output=True, text=True).stdout
    assert f"{total:,} parameters" in said


def test_hover_of_a_parameter_says_whether_it_decays(session):
    session.open(GPT2)
    said = subprocess.run([MPC, "check", "--verbose", ROOT / "examples/gpt2.mdl"], capture_output=True, text=True).stdout
    for name, path in (("wq, wk", "h.*.attn.wq"), ("gain :", "ln_f.gain"), ("wte :", "wte"), ("b_up   :", "h.*.mlp.b_up")):
        decays = re.search(r"^ *weight decay: (.*)$", said, re.M).group(1)
        assert ("weight decay applies" in hover(session, GPT2, name)) == (f" {path}," in decays + ","), said


@pytest.mark.parametrize("part, nth, expected", [
    ("x = wte", 0, "x : [batch, seq, embed]"),
    ("q, k, v, seq", 0, "q : [batch, seq, heads, head]"),
    ("logits, labels", 0, "logits : [batch, seq, vocab]"),
    ("labels, vocab", 0, "labels : i32[batch, seq]"),
    ("layers {", 0, "layers = 12"),
    ("head, causal", 0, "head = 64"),
])
def test_hover_of_values(session, part, nth, expected):
    session.open(GPT2)
    assert f"\n{expected}\n" in hover(session, GPT2, part, nth)


def test_hover_in_a_broken_file_keeps_what_is_right(session):
    text = GPT2.replace("v = dot(x, wv, embed) + bv", "v = dot(x, wv,")
    assert session.open(text)
    assert "k : [batch, seq, heads, head]" in hover(session, text, "k = dot")
    assert "logits : " not in hover(session, text, "logits = dot")  # it depends on the line that is wrong
    session.change(GPT2)
    session.change(text)  # and was known before : [batch, seq, vocab]" in hover(session, text, "logits = dot")


def test_every_function_has_a_page(session):
    """Each row of builtins.def has a row in docs/, which hover shows."""
    names = re.findall(r"^BUILTIN\((\w+),", (ROOT / "frontend/builtins.def").read_text(), re.M)
    assert len(names) > 50
    text = "".join(f"const c{i} = {name}(1)\n" for i, name in enumerate(names))
    session.open(text)
    for i, name in enumerate(names):
        shown = hover(session, text, f"= {name}(", 0) or session.at("text_document_hover", (i, len(f"const c{i} = "))).contents.value
        assert shown.startswith(f"```mdl\n{name}(") and "_docs/" in shown, name


def test_every_setting_has_a_page(session):
    keys = set(re.findall(r'^SETTING\("(\w+)", *NULL', (ROOT / "frontend/settings.def").read_text(), re.M))
    keys |= {"optimizer", "schedule", "precision", "grad_storage", "loss_chunks", "freeze", "trained"}
    text = "train {\n" + "".join(f"    {key} = 1\n" for key in sorted(keys)) + "}\n"
    session.open(text)
    for i, key in enumerate(sorted(keys)):
        shown = session.at("text_document_hover", (i + 1, 4))
        assert shown and f"`{key}`" in shown.contents.value, key
