"""The life of a session, changes of text, messages about it; and messages that are none."""
import copy
import json
import random
import shutil
import subprocess

import pytest
from lsprotocol import types as lsp

from client import MPC, ROOT, URI, a_range, part_at, place

SMALL = """dim batch
dim seq   = 64
dim vocab = 256
dim after = vocab
model bigram {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param table  : [vocab, after]  = normal(0.02)
    logits = rename(table[vocab = tokens], after -> vocab)
    loss mean(cross_entropy(logits, labels, vocab))
}
"""


def test_a_model_without_errors_has_no_notes(session):
    assert session.open(SMALL) == ()


def test_each_error_of_mpc_check_is_a_note(session, tmp_path):
    text = SMALL.replace("i32[batch, seq] =", "i32[batch, sequ] =").replace("rename(", "renam(")
    (tmp_path / "m.mdl").write_text(text)
    said = subprocess.run([MPC, "check", tmp_path / "m.mdl"], capture_output=True, text=True).stderr
    notes = session.open(text)
    assert len(notes) == said.count(": error: ") > 1
    for note in notes:
        message, *help = note.message.split("\n")
        at = f"m.mdl:{note.range.start.line + 1}:{note.range.start.character + 1}: error: {message}"
        assert at.split(" (")[0] in said
        assert all(h.replace("help", "= help") in said for h in help)


def test_notes_of_positions_are_utf16(session):
    text = SMALL.replace("    logits =", '    logits = 1 + "𝔘ü" +')
    note = session.open(text)[0]
    assert part_at(text, note.range) == '"𝔘ü"'
    assert note.range.end.character - note.range.start.character == 5


def test_warnings_are_no_errors(session):
    text = (SMALL.replace("mean(cross_entropy(logits, labels, vocab))",
                          "mean(cross_entropy(logits, labels, vocab) * answered)")
            .replace("    param", "    input answered : bool[batch, seq]\n    param"))
    notes = session.open(text)
    assert [n.severity for n in notes] == [lsp.DiagnosticSeverity.Warning]


def test_incremental_changes(session):
    session.open(SMALL)
    notes = session.change((place(SMALL, "labels, vocab"), place(SMALL, "labels, vocab", after=True), "label, vocab"))
    assert "did you mean 'labels'?" in notes[0].message
    at = place(SMALL, "labels, vocab")
    assert session.change(((at[0], at[1] + 5), (at[0], at[1] + 5), "s")) == ()


@pytest.mark.parametrize("seed", range(5))
def test_any_changes_give_the_text_of_the_editor(session, seed):
    """Against Python's own replacement, on lines of several kinds of characters and ends."""
    pick = random.Random(seed)
    text = "# ä𝔘 x\r\n" + SMALL.replace("\n", "\r\n", 3)
    session.open(text)
    for _ in range(20):
        begin = pick.randrange(len(text) + 1)
        end = min(len(text), begin + pick.choice([0, 1, 5, 40]))
        while begin > 0 and text[begin - 1:begin + 1] == "\r\n":
            begin -= 1  # no editor has a place within a line end
        while end < len(text) and text[end - 1:end + 1] == "\r\n":
            end += 1
        new = pick.choice(["", "x", "\n", "𝔘", "ä\n\n", "\r\n", "dim y = 3\n"])
        here = [position(text, begin), position(text, end)]
        text = text[:begin] + new + text[end:]
        session.change((*here, new))
    assert text == everything(session, text)


def position(text, at):
    lines = text[:at].replace("\r\n", "\n").split("\n")
    return len(lines) - 1, len(lines[-1].encode("utf-16-le")) // 2


def everything(session, text):
    """The server's text, seen through a formatting that replaces all of it; what it says of another text differs."""
    session.change((position(text, len(text)), position(text, len(text)), "\n?"))
    through_change = [(n.range, n.message) for n in session.notes[URI]]
    session.change(text + "\n?")
    assert through_change == [(n.range, n.message) for n in session.notes[URI]] != []
    return text


def test_a_closed_document_has_no_notes(session):
    assert session.open("model")
    session.close_document()
    session.open("dim", uri="file:///other.mdl")
    assert session.notes[URI] == ()


def test_options_of_the_command_line_and_files():
    from client import Session
    session = Session("--stdio", "-D", "seqq=3")
    assert "no const or dim is named 'seqq'" in session.open(SMALL)[0].message
    assert session.close() == 0


# --- Bytes ---

def frame(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def talk(data, *options):
    done = subprocess.run([MPC, "lsp", *options], input=data, capture_output=True, timeout=60)
    answers, rest = [], done.stdout
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        length = int(head.split(b":")[1])
        answers.append(json.loads(rest[:length]))
        rest = rest[length:]
    assert done.stderr == b"" and done.returncode in (0, 1), done.stderr.decode()
    return done.returncode, answers


INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}
SHUTDOWN = {"jsonrpc": "2.0", "id": 2, "method": "shutdown"}
EXIT = {"jsonrpc": "2.0", "method": "exit"}


def test_exit_after_shutdown_is_0_and_else_1():
    assert talk(b"".join(map(frame, [INITIALIZE, SHUTDOWN, EXIT])))[0] == 0
    assert talk(b"".join(map(frame, [INITIALIZE, EXIT])))[0] == 1
    assert talk(frame(INITIALIZE))[0] == 1


@pytest.mark.parametrize("data, code", [
    (b"Content-Type: x\r\n\r\n", -32700),
    (b"Content-Length: many\r\n\r\n", -32700),
    (b"Content-Length: 300000000\r\n\r\n", -32700),
    (frame(b"{"), -32700),
    (frame(b"[" * 2000), -32700),
    (frame([]), -32600),
    (frame({"id": 7}), -32600),
    (frame({"id": 7, "method": 3}), -32600),
    (frame({"id": 7, "method": "textDocument/hover"}), -32002),
    (frame(INITIALIZE) + frame({"id": 7, "method": "no/such"}), -32601),
    (frame(INITIALIZE) + frame({"id": 7, "method": "textDocument/hover"}), -32602),
    (frame(INITIALIZE) + frame({"id": 7, "method": "initialize"}), -32600),
    (frame(INITIALIZE) + frame(SHUTDOWN) + frame({"id": 7, "method": "textDocument/hover"}), -32600),
])
def test_what_is_no_message_gets_an_error(data, code):
    answers = talk(data)[1]
    assert answers[-1]["error"]["code"] == code and answers[-1]["error"]["message"]


def test_after_a_bad_message_the_next_one_is_answered():
    status, answers = talk(b"Hello: 1\n\n" + frame(b"nonsense") + frame(INITIALIZE) + frame(SHUTDOWN) + frame(EXIT))
    assert status == 0 and [("error" in a) for a in answers] == [True, True, False, False]


def test_mutated_messages_never_crash_it():
    """Parts of a session with bytes and values changed: each ends with status 0 or 1, and JSON alone is printed."""
    pick = random.Random(46)
    text = (ROOT / "examples/chars.mdl").read_text()
    document = {"textDocument": {"uri": URI, "languageId": "mdl", "version": 1, "text": text}}
    methods = ["definition", "references", "documentHighlight", "prepareRename", "rename", "documentSymbol", "formatting",
               "hover", "completion", "signatureHelp", "semanticTokens/full", "codeAction", "inlayHint"]
    values = [None, True, -1, 1e300, 2 ** 40, "", "x", [], {}, [[]], {"line": 1, "character": 1}, "Ā\0"]
    for _ in range(25):
        messages = [INITIALIZE, {"method": "textDocument/didOpen", "params": document}]
        for i in range(30):
            params = {"textDocument": {"uri": URI, "version": i},
                      "position": {"line": pick.randrange(80), "character": pick.randrange(40)},
                      "newName": "other", "range": {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}},
                      "context": {"diagnostics": [], "includeDeclaration": True},
                      "contentChanges": [{"range": {"start": {"line": pick.randrange(80), "character": 3},
                                                    "end": {"line": pick.randrange(80), "character": 9}},
                                          "text": pick.choice(["x", "{", "\n", "dim "])}]}
            for _ in range(pick.randrange(3)):
                mutate(params, pick, values)
            method = pick.choice(methods + ["didChange"] * 4)
            message = {"method": "textDocument/" + method, "params": params}
            messages.append(message if method == "didChange" else {**message, "id": i})
        data = bytearray(b"".join(map(frame, messages)))
        for _ in range(pick.randrange(3)):
            data[pick.randrange(len(data))] = pick.randrange(256)
        talk(bytes(data))


def mutate(value, pick, values):
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = pick.choice(list(keys)) if keys else None
    if key is None:
        return
    if isinstance(value[key], (dict, list)) and value[key] and pick.random() < 0.7:
        mutate(value[key], pick, values)
    else:
        value[key] = copy.deepcopy(pick.choice(values))


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind")
def test_a_session_leaks_nothing(tmp_path):
    """Every method, over texts that are right and wrong and a dump, under valgrind; layouts are compiled in between."""
    model = (ROOT / "examples/gpt2.mdl").read_text()
    subprocess.run([MPC, "compile", ROOT / "examples/gpt2.mdl", "--mesh", "dp=2", "--compile-to=layout", "-o", tmp_path / "d.mir"],
                   check=True, capture_output=True)
    dump = "file:///d.mir"
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    more = {"definition": {}, "references": {"context": {"includeDeclaration": True}}, "documentHighlight": {}, "hover": {},
            "rename": {"newName": "zz"}, "documentSymbol": {}, "formatting": {}, "completion": {}, "signatureHelp": {},
            "semanticTokens/full": {}, "codeAction": {"range": whole}, "inlayHint": {"range": whole}, "prepareRename": {}}
    messages = [INITIALIZE]
    for uri, text in ((URI, model), (dump, (tmp_path / "d.mir").read_text())):
        messages.append({"method": "textDocument/didOpen",
                         "params": {"textDocument": {"uri": uri, "languageId": "mdl", "version": 1, "text": text}}})
    for i in range(6):
        change = [{"text": model}] if i % 3 == 0 else [{"range": {"start": {"line": 30 + i, "character": 0},
                                                                  "end": {"line": 30 + i, "character": 2 * i}}, "text": "x = ("}]
        messages.append({"method": "textDocument/didChange",
                         "params": {"textDocument": {"uri": URI, "version": i}, "contentChanges": change}})
        for uri in (URI, dump):
            messages += [{"id": i, "method": "textDocument/" + method,
                          "params": {"textDocument": {"uri": uri}, "position": {"line": 30 + 7 * i, "character": 9}, **params}}
                         for method, params in more.items()]
    messages += [{"method": "textDocument/didClose", "params": {"textDocument": {"uri": URI}}}, SHUTDOWN, EXIT]
    done = subprocess.run(["valgrind", "-q", "--child-silent-after-fork=yes", "--leak-check=full", "--error-exitcode=9",
                           MPC, "lsp", "--mesh", "dp=2"], input=b"".join(map(frame, messages)), capture_output=True, timeout=300)
    assert done.returncode == 0 and done.stderr == b"", done.stderr.decode()[:3000]
    assert done.stdout.count(b'"id":') == 2 + 6 * 2 * len(more)


@pytest.mark.parametrize("deep", [" + 1" * 100_000, "[batch = 0]" * 100_000])
def test_an_expression_without_end(deep):
    """Such a tree is an error, and what walks over trees must not run out of stack."""
    text = SMALL.replace("    loss", f"    y = logits{deep}\n    loss")
    at = {"textDocument": {"uri": URI}, "position": {"line": 9, "character": 5}}
    asks = ["hover", "semanticTokens/full", "documentSymbol", "definition", "documentHighlight", "completion"]
    messages = [INITIALIZE, {"method": "textDocument/didOpen", "params": {"textDocument": {
        "uri": URI, "languageId": "mdl", "version": 1, "text": text}}},
        *({"id": i, "method": "textDocument/" + ask, "params": at} for i, ask in enumerate(asks)), SHUTDOWN, EXIT]
    done = subprocess.run([MPC, "lsp"], input=b"".join(map(frame, messages)), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.count(b'"id":') == 2 + len(asks)
