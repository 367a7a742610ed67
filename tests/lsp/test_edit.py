"""Completion, arguments, semantic tokens, quick fixes."""
import re
import subprocess

import pytest
from lsprotocol import types as lsp

from client import MPC, ROOT, URI, a_range, applied, place

GPT2 = (ROOT / "examples/gpt2.mdl").read_text()
IDENTIFIER = lsp.TextDocumentIdentifier(URI)


def typed(session, text, before, words):
    """The labels that are offered after `words` typed on a line of its own behind the line with `before`."""
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if before in line) + 1
    lines.insert(at, words)
    text = "\n".join(lines)
    session.open(text)
    items = session.at("text_document_completion", (at, len(words)))
    for item in items:
        assert item.text_edit.range.end == lsp.Position(at, len(words))
    return {item.label: item for item in items}


def test_values_of_the_block_and_no_other(session):
    items = typed(session, GPT2, "v = dot(x, wv", "    z = ")
    assert {"q", "k", "v", "x", "wq", "wo", "bo", "embed", "layers", "norm", "dot", "attend"} <= set(items)
    assert not {"y", "gain", "tokens", "logits", "w_up"} & set(items)  # below it, or elsewhere
    assert items["q"].detail == "[batch, seq, heads, head]"
    assert items["embed"].detail == "= 768"
    assert items["norm"].detail.startswith("block norm(x: [batch, seq, embed])")
    assert items["attend"].detail.startswith("attend(q, k, v, s, h, causal = false")
    assert items["attend"].text_edit.new_text == "attend("


def test_dims_in_types_and_indices(session):
    dims = {"batch", "seq", "vocab", "embed", "heads", "head", "ff"}
    assert set(typed(session, GPT2, "param wo :", "    param wx : [embed, ")) == dims
    assert set(typed(session, GPT2, "input labels", "    e = wte[")) == dims
    assert "tokens" in typed(session, GPT2, "param wpe", "    e = wte[vocab = ")


def test_arguments_of_functions(session):
    items = typed(session, GPT2, "v = dot(x, wv", "    z = attend(q, k, v, seq, head, ")
    row = re.search(r'BUILTIN\(attend, .*?KEYWORDS\((.*?)\)', (ROOT / "frontend/builtins.def").read_text()).group(1)
    assert {f"{k} = " for k in re.findall(r'"(\w+)"', row)} == {i for i in items if i.endswith(" = ")}
    assert set(typed(session, GPT2, "v = dot(x, wv", "    z = rope(q, seq, head, style = ")) >= {"half", "interleaved"}


def test_words_of_the_layout(session):
    before = "shard batch over dp"
    assert set(typed(session, GPT2, before, "    shard seq over ")) == {"dp", "tp", "pp"}
    assert "seq" in typed(session, GPT2, before, "    shard ")
    assert {"attn", "h", "ln_f"} <= set(typed(session, GPT2, before, "    pipeline "))
    assert set(typed(session, GPT2, before, "    recompute ")) == {"none", "selective", "full", "auto"}
    assert "1f1b" in typed(session, GPT2, before, "    pipeline h over pp, schedule = ")
    assert "attend" in typed(session, GPT2, before, "    shard seq over dp (")
    assert "ring" in typed(session, GPT2, before, "    shard seq over dp (attend = ")


def test_settings_are_those_of_the_compiler(session):
    """The compiler lists its settings where one is unknown."""
    note = session.open("train { zzzzzzzz = 1 }\n" + GPT2.split("train {")[0])[0]
    listed = set(re.findall(r"\w+", re.search(r"one of (.*) or a group", note.message).group(1)))
    assert set(typed(session, GPT2, "seed       =", "    ")) == listed | {"group"}


@pytest.mark.parametrize("key", ["optimizer", "schedule", "precision", "grad_storage", "loss_chunks"])
def test_each_word_of_a_setting_is_one(session, key):
    items = typed(session, GPT2, "seed       =", f"    {key} = ")
    words = [i for i in items if items[i].kind == lsp.CompletionItemKind.Keyword]
    assert len(words) > 1
    text = re.sub(rf"\n *{key} .*", "", GPT2)
    for word in words:
        arguments = {"linear": "(steps = 9)", "cosine": "(steps = 9)", "wsd": "(steps = 9, decay = 3)"}.get(word, "")
        value = word + (arguments or ("()" if key in ("optimizer", "schedule") else ""))
        notes = session.change(text.replace("seed       =", f"{key} = {value}\n    seed ="))
        assert not [n for n in notes if word in n.message and "muon" not in n.message], notes


def test_statements_that_begin(session):
    assert {"const", "dim", "block", "model"} <= set(typed(session, GPT2, "const layers", ""))
    assert "param" in typed(session, GPT2, "block norm(", "    ")
    assert "zeros" in typed(session, GPT2, "block norm(", "    param x : [embed] = ")


def test_comments_are_left_alone(session):
    assert typed(session, GPT2, "block norm(", "    # a par") == {}


def test_arguments_while_they_are_typed(session):
    text = GPT2.replace("y = attend(q, k, v, seq, head, causal = true)", "y = attend(q, dot(k, k), ")
    session.open(text)
    found = session.at("text_document_signature_help", place(text, "dot(k, k), ", after=True))
    assert found.signatures[0].label.startswith("attend(q, k, v") and found.active_parameter == 2
    assert [p.label for p in found.signatures[0].parameters][:3] == ["q", "k", "v"]
    inner = session.at("text_document_signature_help", place(text, "dot(k, k", after=True))
    assert inner.signatures[0].label.startswith("dot(") and inner.active_parameter == 1
    block = GPT2.replace("mlp(norm(x) as ln_2)", "mlp(")
    session.change(block)
    found = session.at("text_document_signature_help", place(block, "return x + mlp(", after=True))
    assert [p.label for p in found.signatures[0].parameters] == ["x: [batch, seq, embed]"]


def tokens(session, text):
    legend = session.capabilities.semantic_tokens_provider.legend
    data = session.ask("text_document_semantic_tokens_full", lsp.SemanticTokensParams(IDENTIFIER)).data
    lines, line, at, found = [part.encode("utf-16-le") for part in text.split("\n")], 0, 0, []
    for i in range(0, len(data), 5):
        down, right, length, kind, modifiers = data[i:i + 5]
        line, at = line + down, right if down else at + right
        found.append((lines[line][2 * at:2 * (at + length)].decode("utf-16-le"), legend.token_types[kind],
                      [m for k, m in enumerate(legend.token_modifiers) if modifiers >> k & 1]))
    return found


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.mdl")), ids=lambda p: p.stem)
def test_every_name_is_a_token(session, example):
    """All words of the text but keywords, in their order."""
    text = example.read_text()
    session.open(text)
    source = re.sub(r'"[^"\n]*"', "", re.sub(r"#.*", "", text))
    keywords = set("const dim padded block param no_decay frozen input model repeat return loss train parallel mesh shard "
                   "over else pipeline zero recompute as true false optimizer state update group scan yield output offload to".split())
    words = [w for w in re.findall(r"(?<![\w.])[A-Za-z_]\w*'*|1f1b", source) if w not in keywords]
    found = [name for name, _, _ in tokens(session, text) if name not in keywords]
    assert found == words


def test_kinds_of_tokens(session):
    text = GPT2.replace("dim batch", "# 𝔘\ndim batch")
    session.open(text)
    kinds = {(name, kind) for name, kind, _ in tokens(session, text)}
    assert {("embed", "type"), ("wq", "property"), ("norm", "function"), ("attend", "function"), ("x", "parameter"),
            ("logits", "variable"), ("clip", "property"), ("causal", "parameter"), ("gpt2", "class")} <= kinds
    assert ("dot", "function", ["defaultLibrary"]) in tokens(session, text)


# --- Quick fixes ---

def actions(session, text):
    whole = a_range((0, 0), (text.count("\n") + 1, 0))
    return session.ask("text_document_code_action", lsp.CodeActionParams(IDENTIFIER, whole, lsp.CodeActionContext([])))


FIXED = [path for path in sorted(ROOT.glob("tests/error/*.mdl"))
         if re.search("did you mean|or remove it|move it up", path.with_suffix(".err").read_text())
         and not path.read_text().startswith("# RUN")]


@pytest.mark.parametrize("path", FIXED, ids=lambda p: p.stem)
def test_a_fix_ends_its_message(session, path):
    """In the files of tests/error: the message is gone, and none about syntax comes."""
    text = path.read_text()
    said = [n.message for n in session.open(text)]
    remedies = [m for m in said if re.search("did you mean|or remove it|move it up", m)]
    found = actions(session, text)
    assert bool(found) == any(is_fixed(m, text) for m in remedies), (remedies, found)
    for action in found:
        message = action.diagnostics[0].message
        after = [n.message for n in session.change(applied(text, action.edit.changes[URI]))]
        assert after.count(message) < said.count(message), (action.title, after)
        assert not [m for m in after if "expected" in m and m not in said], after
        session.change(text)


def is_utf8(data):
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


CHECKED = [path for path in sorted(ROOT.glob("tests/error/*.mdl"))
           if not path.read_bytes().startswith(b"# RUN") and b"\r" not in path.read_bytes() and is_utf8(path.read_bytes())]


def test_messages_are_those_of_mpc_check(session):
    """Of all files of tests/error that `mpc check` refuses: the same messages at the same places.  Those of passes, which
    compile a layout, are not the frontend's."""
    assert len(CHECKED) > 300
    missing = []
    for path in CHECKED:
        said = path.with_suffix(".err").read_text()
        expected = re.findall(rf"^{re.escape(path.name)}:(\d+):(\d+): (?:error|warning): (.*)$", said, re.M)
        uri = f"file://{path}"
        notes = session.open(path.read_text(), uri)
        text = path.read_text().split("\n")
        found = []
        for note in notes:
            start = note.range.start
            column = len(text[start.line].encode("utf-16-le")[:2 * start.character].decode("utf-16-le")) if start.line < len(text) else 0
            found.append((str(start.line + 1), str(column + 1), note.message.split("\n")[0]))
        session.close_document(uri)
        for line, column, message in expected:
            if not any(f[:2] == (line, column) and f[2].startswith(message) for f in found):
                missing.append((path.stem, line, column, message))
        told = len(re.findall(r": (?:error|warning): ", said))
        assert len(found) == told or any(m[0] == path.stem for m in missing), (path.stem, found)
    of_passes = ("fp8_", "loss_chunks_", "recompute_auto_")
    of_folder = ("pipeline_table_none",)  # the file is looked for elsewhere: in the server's folder
    assert all(m[0].startswith(of_passes + of_folder) for m in missing), missing


def is_fixed(message, text):
    """Not those whose remedy changes calls, and so several places; nor one of the results of a call, nor an axis."""
    value = re.match(r"'(\w+)' is computed and never used", message)
    is_result = value and re.search(rf"\w, *{value[1]} *=|\b{value[1]} *, *\w+ *=", text)
    return not is_result and not re.search("the argument '|the dim '|the axis '", message)
