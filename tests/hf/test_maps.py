"""Maps: what they bring where, against numpy; and what is reported of maps, folders and checkpoints that do not fit."""
import importlib.util
import json
import re

import numpy as np
import pytest
from common import MPC, ROOT, compile_as_said, import_folder, read_tensors, run, write_tensors
from families import FAMILIES

MODEL = """
const layers = 2
const first  = 0
const eps    = 1e-5
dim batch
dim seq   = 8
dim vocab = 11
dim embed = 6
dim heads = 3
dim head  = embed / heads
dim ff    = 5
dim two   = 2

block layer(x: [batch, seq, embed]) {
    param wq, wk : [embed, heads, head] = normal(0.02)
    param gains  : [two, embed]         = ones
    param w_up   : [embed, ff]          = normal(0.02)
    param w_down : [ff, embed]          = normal(0.02)
    q = dot(x, wq, embed)
    k = dot(x, wk, embed)
    y = sum(q * k, heads, head)
    z = rmsnorm(x, embed, eps = eps)
    x = z * gains[two = 0] + z * y * gains[two = 1]
    return x + dot(silu(dot(x, w_up, embed)), w_down, ff)
}

model small {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte  : [vocab, embed] = normal(0.02)
    param tail : [embed]        = ones
    x = wte[vocab = tokens]
    repeat layers { x = layer(x) as h }
    loss mean(cross_entropy(dot(x * tail, wte, embed), labels, vocab))
}
train { batch = 2 }
"""

MAP = """# small.map
need kind = "small", "tiny"
need scales.* = 1, none
cycle marks = "a", "b"
set layers = n / two.three else n
set ff = width
prefix top.
top.table [embed, vocab] = wte
top.l.{2*i+first}.qk [heads 2 head, embed] = h.{i}.wq, h.{i}.wk
top.l.{2*i+first}.up [ff, embed] = h.{i}.w_up
top.down [embed, * ff] = h.*.w_down
top.l.*.a [embed] = h.*.gains[two = 0]
top.l.*.b [embed] = h.*.gains[two = 1]
top.tail [embed] = tail
if marks = none, 3: top.lost [embed] = lost
if kind = "tiny", none: if none = none: tied top.head = top.table
ignore top.*.mask
set first = is_first
"""

CONFIG = {"kind": "tiny", "n": 2, "width": 5, "marks": ["a", "b", "a"], "scales": [1, 1.0], "none": None, "is_first": True}


def random(*shape, seed=[0]):
    seed[0] += 1
    return np.random.default_rng(seed[0]).standard_normal(shape).astype(np.float32)


def tensors(prefix="top."):
    table = random(6, 11)
    found = {"table": table, "down": random(6, 10), "tail": random(6), "head": table, "x.mask": random(2)}
    for i in range(2):
        found |= {f"l.{2 * i + 1}.qk": random(12, 6), f"l.{2 * i + 1}.up": random(5, 6), f"l.{i}.a": random(6), f"l.{i}.b": random(6)}
    return {prefix + name: value for name, value in found.items()}


@pytest.fixture
def small(tmp_path):
    (tmp_path / "maps").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "small.mdl").write_text(MODEL)
    (tmp_path / "maps" / "small.map").write_text(MAP)
    (tmp_path / "there" / "config.json").write_text(json.dumps(CONFIG))
    write_tensors(tmp_path / "there" / "model.safetensors", tensors())
    return tmp_path


def fails(small, *options):
    words = [MPC, "import", small / "there", "--model", small / "small.mdl", "-o", small / "w.safetensors", *options]
    text = run(*words, status=1)
    assert not (small / "w.safetensors").exists() and not (small / "w.safetensors.tmp").exists()
    return text.replace(str(small) + "/", "")


@pytest.mark.parametrize("prefix", ["top.", ""])
def test_brings_each_element_to_its_place(small, prefix):
    there = tensors(prefix)
    write_tensors(small / "there" / "model.safetensors", there)
    words = import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    assert words[1:] == [str(small / "small.mdl"), "-D", "layers=2", "-D", "ff=5", "-o", "OUT"]  # the map alone reads `first`
    here = {name: value for name, (_, value) in read_tensors(small / "w.safetensors").items()}
    there = {name.removeprefix("top."): value for name, value in there.items()}
    expected = {"wte": there["table"].T, "tail": there["tail"]}
    for i in range(2):
        qk = there[f"l.{2 * i + 1}.qk"].reshape(3, 2, 2, 6)
        expected |= {f"h.{i}.wq": qk[:, 0].transpose(2, 0, 1), f"h.{i}.wk": qk[:, 1].transpose(2, 0, 1),
                     f"h.{i}.w_up": there[f"l.{2 * i + 1}.up"].T, f"h.{i}.w_down": there["down"][:, 5 * i:5 * i + 5].T,
                     f"h.{i}.gains": np.stack([there[f"l.{i}.a"], there[f"l.{i}.b"]])}
    assert here.keys() == expected.keys()
    for name in here:
        np.testing.assert_array_equal(here[name], expected[name])


def test_older_names_of_norms(small):
    """bert-base-uncased has LayerNorm.gamma and LayerNorm.beta; they are exported under these names too."""
    (small / "maps" / "small.map").write_text(MAP.replace("top.tail ", "top.LayerNorm.weight "))
    there = tensors()
    there["top.LayerNorm.gamma"] = there.pop("top.tail")
    write_tensors(small / "there" / "model.safetensors", there)
    import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    np.testing.assert_array_equal(read_tensors(small / "w.safetensors")["tail"][1], there["top.LayerNorm.gamma"])
    run(MPC, "export", small / "w.safetensors", "--model", small / "small.mdl", "--like", small / "there", "-o", small / "back")
    back = read_tensors(small / "back" / "model.safetensors")
    np.testing.assert_array_equal(back["top.LayerNorm.gamma"][1], there["top.LayerNorm.gamma"])


def test_axes_of_one_element(small):
    there = tensors()
    table, tail = there["top.table"], there["top.tail"]
    write_tensors(small / "there" / "model.safetensors", there | {"top.table": table[:, None], "top.head": table[:, None], "top.tail": tail[None, None]})
    text = MAP.replace("[embed, vocab]", "[embed, 1, vocab]").replace("top.tail [embed]", "top.tail [1, 1, embed]")
    (small / "maps" / "small.map").write_text(text)
    import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    here = read_tensors(small / "w.safetensors")
    np.testing.assert_array_equal(here["wte"][1], table.T)
    np.testing.assert_array_equal(here["tail"][1], tail)


@pytest.mark.parametrize("infinity", [float("inf"), {"__float__": "Infinity"}], ids=["Infinity", "__float__"])
def test_infinity_in_the_configuration(small, infinity):
    config = CONFIG | {"limits": [0.0, infinity], "of": 'not "Infinity'}
    (small / "there" / "config.json").write_text(json.dumps(config))
    (small / "maps" / "small.map").write_text("need limits.* = 0, inf\n" + MAP)
    import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    (small / "w.safetensors").unlink()
    (small / "maps" / "small.map").write_text("need limits.* = 0, 1\n" + MAP)
    assert 'maps/small.map:1:17: error: config.json says limits: [0,{"__float__":"Infinity"}]' in fails(small)


def test_parts_within_heads(small):
    """Parts of one size are those in turn."""
    import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    text = MAP.replace("[heads 2 head, embed]", "[heads (head + head), embed]")
    assert text != MAP
    (small / "maps" / "small.map").write_text(text)
    import_folder(small / "there", small / "small.mdl", small / "same.safetensors")
    assert (small / "w.safetensors").read_bytes() == (small / "same.safetensors").read_bytes()


@pytest.mark.parametrize("said, dtype", [({}, "F32"), ({"dtype": "bfloat16"}, "BF16"), ({"torch_dtype": "float16"}, "F16")], ids=str)
def test_folder_with_a_configuration_alone(small, said, dtype):
    """The map names all tensors but those that are tied or ignored, once also where several parameters are in one."""
    import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    (small / "new").mkdir()
    (small / "new" / "config.json").write_text(json.dumps(CONFIG | said))
    run(MPC, "export", small / "w.safetensors", "--model", small / "small.mdl", "--like", small / "new", "-o", small / "back")
    there, back = read_tensors(small / "there" / "model.safetensors"), read_tensors(small / "back" / "model.safetensors")
    assert sorted(back) == sorted(there.keys() - {"top.head", "top.x.mask"})
    for name, (kind, value) in back.items():
        assert kind == dtype and value.shape == there[name][1].shape
        value = (value.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else value
        np.testing.assert_allclose(value, there[name][1], rtol={"F32": 0, "BF16": 2**-8, "F16": 2**-11}[dtype], atol=1e-7)
    assert (small / "back" / "config.json").read_text() == (small / "new" / "config.json").read_text()


def test_checkpoint_is_loaded_and_exported(small):
    (small / "there" / "tokenizer.model").write_bytes(b"\0\xff\n")
    (small / "there" / "notes.md").write_text("stays there")
    words = import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    trainer = compile_as_said(words, small / "out")
    (small / "text").write_bytes(bytes(np.random.default_rng(1).integers(0, 11, 400).astype(np.uint8)))
    run(trainer, "--data", small / "text", "--data-format", "bytes", "--steps", 0, "--load", small / "w.safetensors", "--save",
        small / "saved.safetensors")
    for name in ("w", "saved"):  # the second one with the optimizer's state
        run(MPC, "export", small / f"{name}.safetensors", "--model", small / "small.mdl", "--like", small / "there", "-o", small / name)
        assert sorted(path.name for path in (small / name).iterdir()) == ["config.json", "model.safetensors", "tokenizer.model"]
        for path in (small / name).iterdir():
            assert path.read_bytes() == (small / "there" / path.name).read_bytes()


def test_a_checkpoint_in_several_files(small):
    """The trainer saves it beside an index; safetensors itself reads it, and mpc export does."""
    words = import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    trainer = compile_as_said(words, small / "out")
    index = small / "w.safetensors.index.json"
    run(trainer, "--steps", 0, "--load", small / "w.safetensors", "--save", index, "--save-files", 3)
    run(trainer, "--steps", 0, "--load", index, "--save", small / "one.safetensors")
    export = ["export", index, "--model", small / "small.mdl", "--like", small / "there", "-o", small / "back"]
    run(MPC, *export)
    assert (small / "back" / "model.safetensors").read_bytes() == (small / "there" / "model.safetensors").read_bytes()
    weight_map = json.loads(index.read_text())["weight_map"]
    files = sorted(small / name for name in set(weight_map.values()))
    assert len(files) == 3
    if importlib.util.find_spec("safetensors"):
        from safetensors import safe_open
        for name, (_, value) in read_tensors(small / "one.safetensors").items():
            with safe_open(small / weight_map[name], "numpy") as file:
                assert np.array_equal(file.get_tensor(name), value)
    words = ["import", small / "there", "--model", small / "small.mdl", "-o", small / "new.safetensors.index.json"]
    assert "mpc import writes one" in run(MPC, *words, status=2)
    damaged = small / weight_map["wte"]
    tensors = read_tensors(damaged)
    tensors["wte"] = ("F32", tensors["wte"][1] + 1)
    write_tensors(damaged, tensors)
    assert "tensor 'wte' has a wrong checksum" in run(MPC, *export, "--overwrite", status=1)
    damaged.unlink()
    assert damaged.name in run(MPC, *export, "--overwrite", status=1)


def test_damage_is_noticed(small):
    import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    raw = bytearray((small / "w.safetensors").read_bytes())
    raw[-2] ^= 1
    (small / "w.safetensors").write_bytes(raw)
    said = run(MPC, "export", small / "w.safetensors", "--model", small / "small.mdl", "--like", small / "there", "-o", small / "out", status=1)
    assert "has a wrong checksum; the file is damaged" in said and not (small / "out").exists()


MISTAKES = [  # what is changed in the map, to what; the place; the message
    ("top.tail [embed]", "config.nothing [embed]", "14:1", "config.json has no list of numbers under this key"),
    ("top.tail [embed]", "config.marks [embed]", "14:1", "config.json has no list of numbers under this key"),
    ("top.tail [embed]", "config.scales [embed]", "14:15", "'config.scales' is [2] in the folder, and [6] by the sizes of the model"),
    ("[embed, vocab] = wte", "[vocab, embed] = wte", "8:11", "'top.table' is [6, 11] in the folder, and [11, 6] by the sizes of the model"),
    ("[embed, vocab] = wte", "[embed, vocabs] = wte", "8:19", "parameter 'wte' [vocab, embed] has no dim 'vocabs'"),
    ("[embed, vocab] = wte", "[embed] = wte", "8:11", "dim 'vocab' of parameter 'wte' is not there"),
    ("[embed, vocab] = wte", "[embed, vocab embed] = wte", "8:12", "this dim is there twice"),
    ("= wte", "= wet", "8:28", "model small has no parameter 'wet'"),
    ("top.table [", "top.tables [", "8:1", "the folder has no tensor 'top.tables'"),
    ("top.tail [embed] = tail\n", "", "1:1", "this map does not say what 'top.tail' [6] of the folder is"),
    ("top.tail [embed] = tail\n", "ignore top.tail\n", "1:1", "this map feeds 0 of the 6 elements of parameter 'tail' (small.mdl:"),
    ("top.tail [embed] = tail\n", "top.tail [embed] = tail\ntop.l.0.b [embed] = tail\n", "15:21", "parameter 'tail' is fed twice: by 'top.tail' and 'top.l.0.b'"),
    ("top.l.*.b [embed] = h.*.gains[two = 1]", "top.l.*.b [embed] = h.*.gains[two = 0]", "13:21", "parameter 'h.*.gains' is fed twice"),
    ("top.l.*.b [embed] = h.*.gains[two = 1]", "top.l.*.a [embed] = h.*.gains[two = 1]", "13:1", "'top.l.0.a' is used twice: also by 'top.l.*.a'"),
    ("top.l.*.b [embed] = h.*.gains[two = 1]", "top.l.*.b [embed] = h.*.gains[two = 2]", "13:21", "the parameter has no such part"),
    ("top.l.*.a [", "top.l.0.a [", "12:1", "'top.l.0.a' is used for several copies of 'h.*.gains'"),
    ("[embed, * ff] = h.*.w_down", "[embed, ff] = h.*.w_down", "11:10", "'top.down' is [6, 10] in the folder, and [6, 5]"),
    ("[heads 2 head, embed]", "[heads 3 head, embed]", "9:29", "the number in an axis must be that of the parameters on the right"),
    ("[heads 2 head, embed]", "[heads head, embed]", "9:22", "only one axis may tell the parameters on the right apart"),
    ("[heads 2 head, embed]", "[heads (head + head + head), embed]", "9:23", "an axis has one part for each parameter on the right"),
    ("[heads 2 head, embed]", "[heads (head + head, embed]", "9:41", "')' should follow the parts of an axis"),
    ("[heads 2 head, embed]", "[(head + head), embed]", "9:23", "a dim should stand here"),
    ("{2*i+first}.up", "{2*j+first}.up", "10:1", "'j' in this name is no copy of 'h.*.w_up', none of its dims, and not set above"),
    ("{2*i+first}.up", "{2*i+first.up", "10:1", "between braces there is a sum: {6*i+j}"),
    ("tied top.head = top.table", "tied top.head = top.down", "16:46", "'top.head' is not the same as 'top.down' in the folder"),
    ('need kind = "small", "tiny"', 'need kind = "small"', "2:13", 'config.json says kind: "tiny"'),
    ("need scales.* = 1, none", "need scales.* = 2", "3:17", "config.json says scales: [1,1"),
    ('cycle marks = "a", "b"', 'cycle marks = "a"', "4:15", 'config.json says marks: ["a","b","a"]'),
    ("need scales.* = 1, none", "need none = 1", "3:13", "config.json says none: nothing"),
    ("need scales.* = 1, none", "need scales.* = one", "3:17", "a value should stand here"),
    ("set ff = width", "set ff = wide", "6:10", "config.json has no number for ff under these keys"),
    ("set ff = width", "set ff = width / n", "6:10", "config.json has 5 / 2 here"),
    ("set ff = width", "set ff = [", "6:10", "a number or a key of config.json should stand here"),
    ("top.tail [embed] = tail", "top.tail embed = tail", "14:10", "'[' should follow the name of a tensor"),
    ("top.tail [embed] = tail", "top.tail [embed = tail", "14:17", "a dim should stand here"),
    ("top.tail [embed] = tail", "top.tail [embed] tail", "14:18", "'=' should follow the axes of a tensor"),
    ("top.tail [embed] = tail", "top.tail [embed] = tail wte", "14:25", "the line should end here, after a statement"),
    ("if marks = none, 3: top", "if marks = none, 3 top", "15:20", "':' should follow a condition"),
    ("if marks = none, 3: top", "if marks = none, x: top", "15:18", "a value should stand here"),
    ("if marks = none, 3: top", "if none = none: if = 3: top", "15:20", "a key of config.json should stand here"),
    ('need kind = "small"', 'need = "small"', "2:6", "a key of config.json should stand here"),
    ("set ff = width", "set = width", "6:5", "a const or dim of the model should stand here"),
    ("ignore top.*.mask", "ignore", "17:7", "a name should stand here"),
    ("set ff = width", "set ff = width\nharmless", "7:9", "a key of config.json should stand here"),
    ("set ff = width", "set ff = width\nharmless a b", "7:12", "the line should end here, after a statement"),
    ("set ff = width", "set ff = width\nalias n", "7:8", "'=' should follow a key of config.json"),
    ("set ff = width", "set ff = width\nalias n = 3", "7:11", "an older name of the key should stand here"),
    ("set ff = width", "set ff = width\nalias n = width", "7:11", "config.json has both 'n' and 'width', which differ"),
    ("set ff = width", "set ff = width\ndefault n =", "7:12", "a value should stand here"),
    ("set ff = width", "set ff = width\nneed width = n * missing", "7:14", "a value should stand here"),
    ("set ff = width", "set ff = width\nneed width <= 2 * n", "7:15", "config.json says width: 5"),
    ("set ff = width", "set ff = width\nneed marks <= 2 * n", "7:15", 'config.json says marks: ["a"'),
    ("set ff = width", "set ff = width\nneed width <= missing", "7:15", "config.json says width: 5"),
    ("set ff = width", "set ff = width\nneed width < 5", "7:14", "'=' should follow '<'"),
    ("set ff = width", "set ff = width\nneed width <= 2.5 * n\nneed width = 4", "8:14", "config.json says width: 5"),
    ("set ff = width", "set ff = width\nneed width = 2 * n, none", "7:14", "config.json says width: 5"),
]


@pytest.mark.parametrize("old, new, place, message", MISTAKES, ids=lambda text: re.sub(r"\W+", " ", text)[:40])
def test_mistakes_in_a_map(small, old, new, place, message):
    (small / "maps" / "small.map").write_text(MAP.replace(old, new, 1))
    said = fails(small)
    assert f"maps/small.map:{place}: error: {message}" in said, said


KEYS = [  # text of config.json behind CONFIG's keys; the map's lines; the place that is refused, and its key; None: nothing is
    ('"a": 1', "harmless b", (2, 1, "a")),
    ('"a": 1, "b": 2', "harmless b", (2, 1, "a")),
    ('"b": 2,\n "a": null', "harmless b", (3, 2, "a")),
    ('"b": {"a": [1, {"a": "]}"}]},\n\t"a": 1', "harmless b", (3, 2, "a")),
    ('"b": {"c": "\\\\\\"", "a": 1}', "harmless b.c", (2, 20, "b.a")),
    ('"b": [1,-2.5e3, [true], Infinity ], "c": {"d" : {"e": { "a" :[]}}}', "harmless b", (2, 57, "c.d.e.a")),
    ('"b": [1, Infinity], "c": {"d" : {"e": { "a" :[]}}}', "harmless b", (2, 41, "c.d.e.a")),
    ('"c": Infinity, "a": {"__float__": "Infinity"}', "need c = inf\nharmless b", (2, 16, "a")),
    ('"b": [4, 5, 6]', "set seq = b.0\nset batch = b.2\nharmless x", (2, 10, "b.1")),
    ('"b": [4, 5, 6]', "set seq = b.0\nharmless b.1, b.2", None),
    ('"b": {}', "harmless x", (2, 1, "b")),
    ('"use_cache": 3, "b": {"id2label": {"7": "x"}}', "harmless x", None),
    ('"use_cache": 3, "b": 8', "need use_cache = 3\nset seq = b\nharmless x", None),
    ('"b": 8', "if b = 7: set seq = b\nharmless x", (2, 1, "b")),
    ('"b": 7', "if b = 7: set seq = b\nharmless x", None),
    ('"b": 8, "c": 8', "set seq = b else c\nharmless x", None),
    ('"b": 8, "c": 9', "set seq = b else c\nharmless x", (2, 9, "c")),
    ('"c": {"d": 8}', "alias b = c\nset seq = b.d\nharmless x", None),
    ('"c": {"d": 8, "e": 1}', "alias b = c\nset seq = b.d\nharmless x", (2, 15, "c.e")),
    ('"c": null, "b": {"d": 8}', "alias b = c\nset seq = b.d\nharmless x", None),
    ('"c": {"f": 8}', "alias b = c\nalias b.d = b.e\nalias b.e = b.f\nset seq = b.d\nharmless x", None),
    ('"b": null', "default b = 9\nset seq = b else 8\nharmless x", None),
    ('"c": 4', "default b = 2 * c\nset seq = b else 1\nneed c = 4\nharmless x", None),
    ('"e\\u0073c\\"": 1', "harmless x", (2, 1, 'esc"')),
]


@pytest.mark.parametrize("text, lines, expected", KEYS, ids=lambda value: re.sub(r"\W+", " ", str(value))[:40])
def test_keys_that_the_map_does_not_read(small, text, lines, expected):
    """`seq` is 8 in the model, and in these configurations where a map sets it."""
    (small / "there" / "config.json").write_text(json.dumps(CONFIG)[:-1] + ",\n" + text + "}")
    (small / "maps" / "small.map").write_text(MAP + lines + "\n")
    if expected is None:
        words = import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
        assert "set seq" not in lines or re.search("seq=[478]", " ".join(words))
        return
    line, column, key = expected
    said = fails(small)
    assert said.count("error:") == 1
    assert f"there/config.json:{line}:{column}: error: '{key}' may change what the model computes, and maps/small.map does not say how" in said
    assert f"add to the map: harmless {key};" in said


def test_a_map_that_lists_no_keys_warns_of_those_it_does_not_read(small):
    (small / "there" / "config.json").write_text(json.dumps(CONFIG | {"a": 1, "b": {"c": 1}, "use_cache": True, "e\u001b": 1}))
    said = run(MPC, "import", small / "there", "--model", small / "small.mdl", "-o", small / "w.safetensors")
    assert re.search(r"^mpc: warning: \S+/there/config.json: \S+/maps/small.map does not read a, b.c, e\?: they may change", said, re.M)
    assert (small / "w.safetensors").exists()


FOLDERS = [  # what is written into the folder; the message
    ("config.json", b"[]", "there/config.json is not a JSON object"),
    ("model.safetensors", b"", "it is no file with contents"),
    ("model.safetensors", b"\xff" * 20, "it is shorter than its header"),
    ("model.safetensors", (2).to_bytes(8, "little") + b"{]", "its header is not a JSON object"),
    ("model.safetensors", (2).to_bytes(8, "little") + b"{}...", "bytes follow its last tensor"),
    ("model.safetensors", None, "has neither model.safetensors nor model.safetensors.index.json"),
]


@pytest.mark.parametrize("name, content, message", FOLDERS, ids=lambda value: str(value)[:30])
def test_broken_folders(small, name, content, message):
    (small / "there" / name).unlink()
    if content is not None:
        (small / "there" / name).write_bytes(content)
    assert message in fails(small)


@pytest.mark.parametrize("entry, message", [
    ({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}, "the place of tensor 'a' does not fit its shape"),
    ({"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}, "tensor 'a' does not begin where the one before ends"),
    ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "does not fit its shape"),
    ({"dtype": "Q4", "shape": [2], "data_offsets": [0, 8]}, "tensor 'a' has dtype Q4 and 1 dims"),
    ({"dtype": "F32", "shape": [2]}, "tensor 'a' lacks dtype, shape or data_offsets"),
])
def test_broken_headers(small, entry, message):
    text = json.dumps({"a": entry}).encode()
    (small / "there" / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"." * 12)
    assert message in fails(small)


def test_shards(small):
    there = {name: value for name, (_, value) in read_tensors(small / "there" / "model.safetensors").items()}
    import_folder(small / "there", small / "small.mdl", small / "one.safetensors")
    (small / "there" / "model.safetensors").unlink()
    names = sorted(there)
    write_tensors(small / "there" / "a.safetensors", {name: there[name] for name in names[:5]})
    write_tensors(small / "there" / "b.safetensors", {name: there[name] for name in names[5:]})
    index = {"weight_map": {name: "ab"[i >= 5] + ".safetensors" for i, name in enumerate(names)}}
    (small / "there" / "model.safetensors.index.json").write_text(json.dumps(index))
    import_folder(small / "there", small / "small.mdl", small / "two.safetensors")
    assert (small / "one.safetensors").read_bytes() == (small / "two.safetensors").read_bytes()
    index["weight_map"][names[0]] = "../a.safetensors"
    (small / "there" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "the weight_map does not name a file of the folder" in fails(small)


def test_nothing_read_is_written_over(small):
    (small / "link.safetensors").hardlink_to(small / "there" / "model.safetensors")
    for out in ("there/model.safetensors", "link.safetensors", "small.mdl"):
        text = run(MPC, "import", small / "there", "--model", small / "small.mdl", "-o", small / out, status=1)
        assert "give another name" in text
    import_folder(small / "there", small / "small.mdl", small / "w.safetensors")
    text = run(MPC, "export", small / "w.safetensors", "--model", small / "small.mdl", "--like", small / "there", "-o", small / "there", status=1)
    assert "--like reads it" in text
    assert "config.json sets this value" in fails_there(small, "-D", "layers=2")


def fails_there(small, *options):
    return run(MPC, "import", small / "there", "--model", small / "small.mdl", "-o", small / "x.safetensors", *options, status=1)


def test_table_has_a_row_for_each_family():
    rows = re.findall(r"^\| ([^|]+) \| `(\w+)` \| `([^`]+)` \| ([^|]+) \|", (ROOT / "docs/models.md").read_text(), re.M)
    assert rows == [(f.name, f.model, f.file, f.covers) for f in FAMILIES], "BLESS=1 sh tests/hf/run.sh"


PUBLISHED = {"gpt2": 124_439_808, "bert": 109_514_298, "llama": 1_100_048_384, "llama3.1": 8_030_261_248,
             "llama3.2": 1_235_814_400, "qwen2": 494_032_768, "qwen3": 596_049_920, "neox": 162_322_944,
             "gemma2": 2_614_341_888, "gemma3": 999_885_952, "t5": 247_577_856, "mamba": 129_135_360, "mamba2": 128_989_632,
             "rwkv": 169_342_464, "mixtral": 46_702_792_704, "qwen3moe": 30_532_122_624, "qwen2moe": 14_315_784_192, "gptoss": 20_914_757_184,
             "roberta": 124_697_433, "distilbert": 66_955_010, "mpt": 6_649_286_656,
             "falcon": 6_921_720_704, "bloom": 559_214_592, "gptj": 6_050_882_784, "phi2": 2_779_683_840,
             "starcoder2": 3_030_371_328, "granite": 2_533_531_648, "olmoe": 6_919_161_856, "opt": 125_239_296}


@pytest.mark.parametrize("name", PUBLISHED)
def test_examples_have_as_many_parameters_as_published(name):
    file = next(folder / f"{name}.mdl" for folder in (ROOT / "examples", ROOT / "tests/models") if (folder / f"{name}.mdl").exists())
    said = re.search(r"([\d,]+) parameters", run(MPC, "check", file))[1]
    assert int(said.replace(",", "")) == PUBLISHED[name]
