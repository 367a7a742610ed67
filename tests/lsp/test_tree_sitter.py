"""The grammar for tree-sitter: without conflicts, by bison; and with its tables every model has the tree that mpc's parser makes."""
import re
import shutil

import lsprotocol.types as lsp
import pytest

from client import ROOT, URI
from tree_sitter import Grammar

FOLDER = ROOT / "editors/tree-sitter-mpc"
MODELS = [*ROOT.glob("examples/*.mdl"), *ROOT.glob("tests/models/*.mdl"), *ROOT.glob("frontend/**/*.mdl"), *ROOT.glob("tests/random/found/*.mdl")]
pytestmark = pytest.mark.skipif(not shutil.which("node") or not shutil.which("bison"), reason="no node, or no bison")


@pytest.fixture(scope="module")
def grammar(tmp_path_factory):
    return Grammar(FOLDER / "grammar.js", tmp_path_factory.mktemp("grammar"))


def nodes_of(tree, *kinds):
    name, inside = tree
    if name in kinds:
        yield tree
    if isinstance(inside, list):
        for _, child in inside:
            yield from nodes_of(child, *kinds)


def names_in(tree):
    return [child[1] for field, child in tree[1] if field == "name"]


def test_no_conflicts(grammar, tmp_path):
    """Such as there are where nothing says that a - b - c is (a - b) - c."""
    assert grammar.said == ""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    text = (FOLDER / "grammar.js").read_text()
    assert text.count("prec.left(") == 1
    (tmp_path / "a/b/grammar.js").write_text(text.replace("prec.left(", "prec("))
    assert "conflict" in Grammar(tmp_path / "a/b/grammar.js", tmp_path).said


def test_every_model_is_read(grammar):
    assert len(MODELS) > 200
    for path in MODELS:
        tree = grammar.parse(path.read_text())
        assert tree[0] == "source_file" and len(tree[1]) > 0


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.mdl")), ids=lambda path: path.stem)
def test_declarations_are_those_of_mpc(grammar, session, path):
    """The same names in the same order as `mpc lsp` lists them."""
    text = path.read_text()
    session.open(text)
    symbols = session.ask("text_document_document_symbol", lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(URI)))
    declared = [name for tree in nodes_of(grammar.parse(text), "const", "dim", "block", "optimizer", "model") for name in names_in(tree)]
    assert [s.name for s in symbols][:len(declared)] == declared


def shape(tree):
    """With parentheses around each node of an expression."""
    name, inside = tree
    if not isinstance(inside, list):
        return inside
    text = " ".join(shape(child) for _, child in inside)
    return f"({text})" if name in ("binary", "unary", "index", "instance", "frozen") else text


@pytest.mark.parametrize("text, wanted", [
    ("a + b * c - d", "((a + (b * c)) - d)"), ("-a ^ b ^ c", "(- (a ^ (b ^ c)))"), ("-a * b", "((- a) * b)"), ("a / b % c", "((a / b) % c)"),
    ("a + 1 <= b", "((a + 1) <= b)"), ("a ^ b[d = 1]", "(a ^ (b [ d = 1 ]))"), ("-f(x)[d = 0 : 2 -> e]", "(- (f ( x ) [ d = 0 : 2 -> e ]))"),
    ("f[d, e](x) as g", "(f [ d , e ] ( x ) as g)"), ("frozen f(x) as g", "(frozen (f ( x ) as g))"), ("f(x, d -> (e, g), k = 2)", "f ( x , d -> ( e , g ) , k = 2 )")])
def test_expressions(grammar, text, wanted):
    tree = next(nodes_of(grammar.parse(f"y = {text}\nz = 1"), "assignment"))
    assert shape(tree) == f"y = {wanted}"


def test_words_that_may_be_names(grammar):
    tree = grammar.parse("train {\n    optimizer = adamw(lr = 1)\n    batch = 4\n}\nupdate = scan + yield\nstate a = mean of b (0.9)\n"
                         "state mean = mean(x, group)\noptimizer own(lr) {\n    update param - keep\n}\n"
                         "output = f(output)\noutput output\noutput a : [batch] = output\n")
    assert [names_in(one) for one in nodes_of(tree, "output")] == [["output"], ["a"]]
    assert [names_in(one) for one in nodes_of(tree, "assignment")] == [["optimizer"], ["batch"], ["update"], ["output"]]
    assert [names_in(one) for one in nodes_of(tree, "state", "optimizer")] == [["a"], ["mean"], ["own"]]
    assert len(list(nodes_of(tree, "mean_of"))) == 1


@pytest.mark.parametrize("text", ["x = = 1", "dim 3", "block f { }", "x = f(", "x = a b", "param w = ones", "model m { x = 1", "shard a tp", "x = 1.2.3"])
def test_broken_texts(grammar, text):
    with pytest.raises(SyntaxError):
        grammar.parse(text)


def test_colours(grammar):
    """What the query names is in the grammar, and every keyword has a colour."""
    query = (FOLDER / "queries/highlights.scm").read_text()
    coloured = set(re.findall(r'"([a-z_]+)"', query))
    assert coloured == {literal for literal in grammar.literals if re.fullmatch("[a-z_]+", literal)} - {"true", "false", "mean"}
    assert set(re.findall(r"\((\w+)", query)) <= set(grammar.source["rules"])
    fields = {symbol[1] for _, symbols, *_ in grammar.productions for symbol in symbols}
    assert set(re.findall(r"(\w+): \(", query)) <= fields
