"""What transformers takes for each key of config.json that is not there: for the small models of families.py, and others.

`build/hf/bin/python tests/hf/defaults.py` writes defaults.json, which the tests read where there is no transformers."""
import json
import tempfile
from pathlib import Path

from families import FAMILIES, OTHERS

FILE = Path(__file__).with_name("defaults.json")
BOOKKEEPING = {"id2label", "label2id", "transformers_version", "_name_or_path", "architectures", "dtype"}  # harmless.def


def leaves(config, before=()):
    """(path, value) of all keys, also of those in others."""
    for key, value in config.items():
        if key in BOOKKEEPING:
            continue
        if isinstance(value, dict) and value and "__float__" not in value:
            yield from leaves(value, (*before, key))
        else:
            yield (*before, key), value


def changed(config, path, value=None, remove=False):
    """A copy with another value under this path, or without it."""
    result = at = json.loads(json.dumps(config))
    for key in path[:-1]:
        at = at.setdefault(key, {})
        if not isinstance(at, dict):
            return None
    if remove:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return result


def plain(config):
    """As it is in config.json."""
    text = config.to_json_string(use_diff=False)
    return {key: value for key, value in json.loads(text).items() if key not in BOOKKEEPING}


def read_config(cls, config):
    """As transformers reads it from a folder."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return cls.from_pretrained(folder)


def missing_values(cls, config):
    """{"rope_parameters.rope_theta": value}: what is taken in the place of each key that is not there, where that is another
    value than in `config`; "refused" where there is none."""
    found = {}
    for path, value in leaves(config):
        try:
            taken = dict(leaves(plain(read_config(cls, changed(config, path, remove=True)))))
        except Exception:  # of many kinds
            found[".".join(path)] = "refused"
            continue
        if taken.get(path) != value:
            found[".".join(path)] = taken.get(path)
    return found


def make_table(transformers):
    table = {"transformers": transformers.__version__, "families": {}}
    for family in [*FAMILIES, *OTHERS]:
        cls = getattr(transformers, family.config)
        config = plain(cls(**family.arguments))
        table["families"][family.name] = {"config": config, "missing": missing_values(cls, config)}
    return table


def as_text(table):
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in table["families"].items()]
    return f'{{"transformers": "{table["transformers"]}", "families": {{\n' + ",\n".join(lines) + "\n}}\n"


def read_table():
    """Of transformers where it is installed, else of the file."""
    try:
        import transformers
    except ImportError:
        return json.loads(FILE.read_text())
    return json.loads(as_text(make_table(transformers)))


if __name__ == "__main__":
    import transformers
    FILE.write_text(as_text(make_table(transformers)))
