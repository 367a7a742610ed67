"""Keys of config.json: each map knows all keys of its families, with transformers' own values of those that are not there;
what it does not know is refused."""
import json
import os
import re

import pytest
from common import MPC, ROOT, run
from defaults import FILE, changed, leaves, read_table
from families import FAMILIES, OTHERS
from published import PUBLISHED

ALL = [*FAMILIES, *OTHERS]
TABLE = read_table()


def map_of(family):
    path = ROOT / family.file
    return ROOT / family.map if family.map else path.parent / "maps" / path.with_suffix(".map").name


def known(folder, family, config):
    """What the map makes of a configuration: {name: value} of the model's consts and dims; or the first message.  Nothing is
    written: every value is given by -D, too, and mpc says which it has already."""
    (folder / "config.json").write_text(json.dumps(config))
    names = set(re.findall(r"\bset (\w+)", map_of(family).read_text()))
    defines = [word for name in sorted(names) for word in ("-D", f"{name}=0")]
    said = run(MPC, "export", "none", "--like", folder, "--model", ROOT / family.file, "--map", map_of(family), "-o",
               folder / "out", *defines, status=1)
    values = dict(re.findall(r"config\.json sets this value, (\w+)=(\S+) ", said))
    assert "warning" not in said, said
    return values if values and said.count("error:") == len(values) else said


# Keys that only older versions wrote, and that some classes still read; and what no class of these does.
OLDER = {"rope_theta": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "partial_rotary_factor": 0.5, "rotary_pct": 0.5,
         "rotary_emb_base": 500, "rope_local_base_freq": 500.0, "global_rope_theta": 500.0, "local_rope_theta": 500.0,
         "sliding_window_pattern": 2, "global_attn_every_n_layers": 2, "position_embedding_type": "relative_key",
         "scale_decoder_outputs": True, "original_max_position_embeddings": 16, "text_config": {"sliding_window": 2, "hidden_size": 3},
         "quantization_config": {"quant_method": "fp8"}, "unheard_of": None}


def left_over(family):
    """Keys of all other families, with their values there, and older ones."""
    own = {path for path, _ in leaves(TABLE["families"][family.name]["config"])}
    found = {path: value for other in ALL for path, value in leaves(TABLE["families"][other.name]["config"])}
    found |= {(key,): value for key, value in OLDER.items()}
    return {path: value for path, value in found.items() if path not in own}


def refused_keys(folder, family, config, extra):
    """Those of the keys that the map does not know, with a place in config.json; it is asked for some of them at a time."""
    found, paths = set(), list(extra)
    for i in range(0, len(paths), 40):
        both = config
        for path in paths[i:i + 40]:
            both = changed(both, path, extra[path]) or both
        said = known(folder, family, both)
        found |= set(re.findall(r"config\.json:\d+:\d+: error: '([\w.]+)' may change what the model computes", str(said)))
    return {path for path in paths if ".".join(path) in found}


def test_the_table_of_defaults_is_that_of_its_version():
    table = json.loads(FILE.read_text())
    assert table["families"].keys() == {family.name for family in ALL}, "write it again: build/hf/bin/python tests/hf/defaults.py"
    if TABLE["transformers"] == table["transformers"]:
        assert TABLE == table, "write it again: build/hf/bin/python tests/hf/defaults.py"


@pytest.mark.parametrize("path", sorted([*ROOT.glob("examples/maps/*.map"), *ROOT.glob("tests/models/maps/*.map")]), ids=lambda path: path.stem)
def test_every_map_lists_its_keys(path):
    assert re.search(r"^harmless ", path.read_text(), re.M)
    has_adapters = re.search(r"^adapter ", path.read_text(), re.M)  # of a family that has a map without them: test_adapter.py
    assert has_adapters or path in {map_of(family) for family in ALL}, "families.py has no family of this map"


# Without this key lists have other lengths than the model wants: refused where they are read, which `known` does not do.
LENGTHS = {("Phi-4 mini", "rope_parameters.partial_rotary_factor")}


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_map_knows_the_keys_of_its_family(family, tmp_path):
    entry = TABLE["families"][family.name]
    base = known(tmp_path, family, entry["config"])
    assert isinstance(base, dict), base
    wrong = []
    for path, value in leaves(entry["config"]):
        key = ".".join(path)
        taken = entry["missing"].get(key, value)
        there = known(tmp_path, family, changed(entry["config"], path, remove=True))
        if not isinstance(there, dict) or (family.name, key) in LENGTHS:
            continue  # refused: config.json has to say it
        said = base if taken == value else known(tmp_path, family, changed(entry["config"], path, taken))
        if taken == "refused" or there != said:
            wrong.append((key, taken, {name: value for name, value in there.items() if base.get(name) != value}))
    assert not wrong, wrong


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_known(name, tmp_path):
    family, config = PUBLISHED[name]
    said = known(tmp_path, next(one for one in ALL if one.name == family), config)
    assert isinstance(said, dict), said


WRONG_BEFORE = [  # the family; keys with other values, and without (...); what is refused, or what the model's values become
    ("Llama 2, 3", {"sliding_window": 8}, "error: config.json says sliding_window: 8"),
    ("Gemma 3", {"layer_types": ..., "_sliding_window_pattern": ..., "sliding_window_pattern": 2}, "error: config.json says sliding_window_pattern: 2"),
    ("GPT-2", {"scale_attn_weights": False}, "error: config.json says scale_attn_weights: false"),
    ("GPT-2", {"scale_attn_by_inverse_layer_idx": True}, "error: config.json says scale_attn_by_inverse_layer_idx: true"),
    ("GPT-2", {"reorder_and_upcast_attn": True}, "error: config.json says reorder_and_upcast_attn: true"),
    ("gpt-oss", {"rope_parameters.truncate": ...}, "error: config.json says rope_parameters.truncate: nothing"),
    ("gpt-oss", {"rope_parameters.mscale": 1.0, "rope_parameters.mscale_all_dim": 0.5}, "error: config.json says rope_parameters.mscale: 1"),
    ("Mixtral", {"rope_parameters": ...}, {"theta": "1000000"}),
    ("Llama 2, 3", {"rope_parameters": ...}, {"theta": "10000"}),
    ("Mistral", {"sliding_window": ...}, {"window": "4096"}),
    ("Mistral", {"sliding_window": None}, {"window": "0"}),
    ("Llama, stretched", {"rope_parameters.rope_type": "default"}, "error: 'rope_parameters.factor' may change"),
    ("Llama 3.1, 3.3", {"rope_parameters.rope_type": ...}, "error: config.json says rope_parameters.rope_type: nothing"),
    ("Llama 2, 3", {"rope_scaling": {"rope_type": "linear", "factor": 2}}, "error: config.json has both 'rope_parameters' and 'rope_scaling'"),
    ("Llama 2, 3", {"rope_parameters": ..., "rope_theta": 7, "rope_scaling": {"type": "linear", "factor": 2}}, {"theta": "7", "stretch": "2"}),
    ("Llama 2, 3", {"text_config": {"sliding_window": 8}}, "error: 'text_config.sliding_window' may change"),
    ("Llama 2, 3", {"quantization_config": {"quant_method": "fp8"}}, "error: 'quantization_config.quant_method' may change"),
]


@pytest.mark.parametrize("name, changes, expected", WRONG_BEFORE, ids=str)
def test_what_was_imported_as_something_else(name, changes, expected, tmp_path):
    config = TABLE["families"][name]["config"]
    for key, value in changes.items():
        config = changed(config, key.split("."), value, remove=value is ...)
    said = known(tmp_path, next(one for one in ALL if one.name == name), config)
    if isinstance(expected, str):
        assert expected in said, said
    else:
        assert isinstance(said, dict) and expected.items() <= said.items(), said
