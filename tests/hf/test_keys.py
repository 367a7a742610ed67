"""Keys of config.json: each map knows all keys of its families, with transformers' own values of those that are not there;
what it does not know is refused."""
import json
import os
import re

import pytest
from common import MPC, ROOT, run
from defaults import changed, leaves, read_table
from families import FAMILIES, OTHERS

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


def left_over(family):
    """Keys of all other families, with their values there."""
    own = {path for path, _ in leaves(TABLE["families"][family.name]["config"])}
    return {path: value for other in ALL for path, value in leaves(TABLE["families"][other.name]["config"]) if path not in own}


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
        if not isinstance(there, dict):
            continue  # refused: config.json has to say it
        if taken == "refused" or there != known(tmp_path, family, changed(entry["config"], path, taken)):
            wrong.append((key, taken, {name: value for name, value in there.items() if base.get(name) != value}))
    assert not wrong, wrong
