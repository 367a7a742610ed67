"""Folders that others have made: only plain files in them are read and published, nothing waits, and bad ones are refused."""
import json
import os
import pty
import re
import shlex
import shutil
import subprocess

import pytest
from common import MPC, ROOT, read_tensors, write_tensors
from small_llama import CONFIG, tensors, write_llama

LLAMA = ROOT / "examples/llama.mdl"
HASH = "0123456789abcdef" * 4


def mpc(*words, status, memory="unlimited", cwd=ROOT):
    """Within 20 s and so many kilobytes; what it says."""
    command = f"ulimit -v {memory}; exec {shlex.join(map(str, [MPC, *words]))}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=20, cwd=cwd, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def there(tmp_path):
    return write_llama(tmp_path / "there")


@pytest.fixture
def checkpoint(tmp_path, there):
    for _ in range(2):  # the second one replaces what the first has written
        mpc("import", there, "-o", tmp_path / "w.safetensors", status=0)
    return tmp_path / "w.safetensors"


def fails_both(tmp_path, folder, checkpoint):
    """What import says; export must say the same, and publish nothing."""
    said = mpc("import", folder, "--model", LLAMA, "-o", tmp_path / "x.safetensors", status=1)
    again = mpc("export", checkpoint, "--model", LLAMA, "--like", folder, "-o", tmp_path / "out", status=1)
    assert again == said
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob("x.safetensors*"))
    return said


# --- What is not a plain file -------------------------------------------------------------------

KINDS = {
    "pipe": (os.mkfifo, "it is a pipe"),
    "folder": (os.mkdir, "it is a folder"),
    "link": (lambda path: os.symlink("/etc/hostname", path), "is a link to /etc/hostname"),
    "link within": (lambda path: os.symlink("other", path), "is a link to other"),
    "device": (lambda path: os.symlink("/dev/zero", path), "is a link to /dev/zero"),
    "blob": (lambda path: os.symlink(f"../../blobs/{HASH}", path), f"is a link to ../../blobs/{HASH}"),
}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read(tmp_path, there, checkpoint, name, kind):
    make, message = KINDS[kind]
    shutil.copy(there / name, there / "other")
    (there / name).unlink()
    make(there / name)
    assert message in fails_both(tmp_path, there, checkpoint)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_published(tmp_path, there, checkpoint, kind):
    make, message = KINDS[kind]
    (there / "other").write_text("{}")
    make(there / "merges.txt")
    assert message in mpc("export", checkpoint, "--model", LLAMA, "--like", there, "-o", tmp_path / "out", status=1)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("target", ["../ok/model.safetensors", "/etc/hostname", "..", ".", "", None, 5, {"a": 1}])
def test_an_index_names_files_of_the_folder(tmp_path, there, checkpoint, target):
    write_llama(tmp_path / "ok")
    (there / "model.safetensors").unlink()
    (there / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: target for name in tensors()}}))
    assert "does not name a file of the folder for 'model.embed_tokens.weight'" in fails_both(tmp_path, there, checkpoint)


# --- Hugging Face's cache -----------------------------------------------------------------------

def test_example_of_a_checkpoint_is_named(tmp_path, there, checkpoint):
    """Without --model: what the weights are taken for; a tensor of another shape is not that."""
    said = mpc("export", checkpoint, "--like", there, "-o", tmp_path / "out", status=0)
    assert "note: taken for a checkpoint of" in said and "examples/llama.mdl" in said
    given = mpc("export", checkpoint, "--model", LLAMA, "--like", there, "-o", tmp_path / "other", status=0)
    assert "taken for" not in given
    weights = {name: numbers for name, (_, numbers) in read_tensors(checkpoint).items()}
    for name, numbers in weights.items():
        write_tensors(tmp_path / "wrong.safetensors", {**weights, name: numbers[..., :1]})
        said = mpc("export", tmp_path / "wrong.safetensors", "--like", there, "-o", tmp_path / "none", status=1)
        assert f"tensor '{name}' is [" in said and "in the model of the folder" in said, said
    assert not (tmp_path / "none").exists()


@pytest.fixture
def snapshot(tmp_path, there):
    """As huggingface_hub lays it out."""
    (there / "tokenizer.json").write_text('{"a": 1}')
    folder = tmp_path / "models--a--b/snapshots/0a1b"
    blobs = tmp_path / "models--a--b/blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    for i, path in enumerate(sorted(there.iterdir())):
        blob = f"{i}{HASH[1:]}" if path.suffix == ".safetensors" else f"{i}{HASH[1:40]}"
        shutil.copy(path, blobs / blob)
        (folder / path.name).symlink_to(f"../../blobs/{blob}")
    return folder


def test_links_of_the_cache_are_followed(tmp_path, there, checkpoint, snapshot):
    mpc("import", snapshot, "-o", tmp_path / "x.safetensors", status=0)
    assert (tmp_path / "x.safetensors").read_bytes() == checkpoint.read_bytes()
    (tmp_path / "link").symlink_to(snapshot)  # what is named on the command line may be a link
    mpc("export", checkpoint, "--like", tmp_path / "link", "-o", tmp_path / "out", status=0)
    for path in there.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes() and not (tmp_path / "out" / path.name).is_symlink()


@pytest.mark.parametrize("damage", ["other", "blob", "blobs", "name"])
def test_other_links_in_the_cache_are_not(tmp_path, checkpoint, snapshot, damage):
    blobs = snapshot.parent.parent / "blobs"
    path = snapshot / "tokenizer.json"
    blob = blobs / os.path.basename(os.readlink(path))
    (tmp_path / "secret").write_text("{}")
    if damage == "other":
        path.unlink()
        path.symlink_to("../../../secret")
    elif damage == "name":
        path.unlink()
        path.symlink_to("../../blobs/../../secret")
    elif damage == "blob":
        blob.unlink()
        blob.symlink_to(tmp_path / "secret")
    else:
        blobs.rename(tmp_path / "elsewhere")
        blobs.symlink_to(tmp_path / "elsewhere")
    said = mpc("export", checkpoint, "--model", LLAMA, "--like", snapshot, "-o", tmp_path / "out", status=1)
    assert "link" in said and not list(tmp_path.glob("out*"))


# --- What is in the files -----------------------------------------------------------------------

def head(text, data=b""):
    return len(text).to_bytes(8, "little") + text + data


INFINITE = json.dumps(CONFIG)[:-1] + ', "x": [' + ", ".join(["Infinity"] * 60000) + "]}"
BROKEN = {  # config.json, model.safetensors, the message
    "twice": (json.dumps(CONFIG)[:-1] + ', "hidden_size": 7}', None, "config.json has the key 'hidden_size' twice"),
    "zero": ('{"a": "b\\u0000c"}', None, "config.json has a text with the character \\u0000"),
    "byte 0": (json.dumps(CONFIG) + "\0", None, "it has a byte 0"),
    "nan": (json.dumps(CONFIG)[:-1] + ',\n"rope_theta": NaN}', None, "config.json:2: this is not JSON"),
    "deep": ('{"a":' + "[" * 1000000, None, "config.json:1: this is not JSON, or nested more than 1,000 deep"),
    "long": (" " * (17 << 20), None, "it is larger than 16 MB"),
    "deep header": (None, head(b'{"a":' * 100000), "its header is not a JSON object"),
    "header twice": (None, head(b'{"a": {"dtype": "F32", "dtype": "F16", "shape": [1], "data_offsets": [0, 4]}}', b"1234"), "has the key 'dtype' twice"),
    "many": (None, head(json.dumps({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100000)}).encode()),
             "the folder has no tensor 'model.embed_tokens.weight'"),
    "long name": (None, head(json.dumps({"n" * 1000000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode(), b"1234"),
                  "the folder has no tensor"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files(tmp_path, case):
    config, weights, message = BROKEN[case]
    folder = write_llama(tmp_path / "there", config, weights)
    said = mpc("import", folder, "--model", LLAMA, "-o", tmp_path / "x.safetensors", status=1, memory=1 << 19)
    assert message in said and len(said) < 1 << 17


def test_infinity_is_read_in_linear_memory(tmp_path):
    """It took 5 GB for 20,000."""
    folder = write_llama(tmp_path / "there", INFINITE)
    assert "'x' may change" in mpc("import", folder, "--model", LLAMA, "-o", tmp_path / "x.safetensors", status=1, memory=1 << 19)


def test_an_index_of_many_files(tmp_path, there):
    (there / "model.safetensors").unlink()
    index = {"weight_map": {f"k{i}": f"f{i}.safetensors" for i in range(30000)}}
    (there / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "f0.safetensors: No such file" in mpc("import", there, "--model", LLAMA, "-o", tmp_path / "x", status=1, memory=1 << 19)


# --- --overwrite --------------------------------------------------------------------------------

def export(checkpoint, there, out, *options, status):
    return mpc("export", checkpoint, "--model", LLAMA, "--like", there, "-o", out, *options, status=status)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_replaced_with_overwrite_alone(tmp_path, there, checkpoint):
    out = tmp_path / "out"
    export(checkpoint, there, out, status=0)
    old = content(out)
    (there / "tokenizer.json").write_text("{}")
    assert "is already there: give another name, or --overwrite" in export(checkpoint, there, out, status=1)
    assert content(out) == old
    (out / "README.md").write_text("mine")
    (out / "sub").mkdir()
    (out / "sub" / "x").write_text("mine, too")
    said = export(checkpoint, there, f"{out}/", "--overwrite", status=0)
    assert f"kept {out}/README.md" in said and f"kept {out}/sub" in said
    assert content(out) == old | {"tokenizer.json": b"{}", "README.md": b"mine", "sub/x": b"mine, too"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "there", "w.safetensors"]


def test_a_terminal_shows_how_far_it_is(tmp_path, there, checkpoint):
    for words in (["import", there, "-o", checkpoint], ["export", checkpoint, "--like", there, "-o", tmp_path / "out"]):
        ours, theirs = pty.openpty()
        subprocess.run([MPC, *map(str, words)], stdout=subprocess.DEVNULL, stderr=theirs, check=True)
        os.close(theirs)
        said = os.read(ours, 4096)
        os.close(ours)
        assert re.search(rb"\x1b\[K1 of \d+ (parameters|tensors)\r.*\x1b\[K", said, re.S), said


def test_an_empty_folder_is_filled(tmp_path, there, checkpoint):
    (tmp_path / "out").mkdir()
    export(checkpoint, there, tmp_path / "out", status=0)
    assert read_tensors(tmp_path / "out" / "model.safetensors").keys() == tensors().keys()


def test_nothing_is_lost_where_an_export_fails(tmp_path, there, checkpoint):
    out = tmp_path / "out"
    export(checkpoint, there, out, status=0)
    (out / "README.md").write_text("mine")
    old = content(out)
    os.mkfifo(there / "z.json")
    export(checkpoint, there, out, "--overwrite", status=1)
    assert content(out) == old and not list(tmp_path.glob("out?*"))


def test_old_weights_do_not_stay_beside_new_ones(tmp_path, there, checkpoint):
    out = tmp_path / "out"
    out.mkdir()
    (out / "model-00001-of-00002.safetensors").write_text("old")
    assert "would be left beside the new weights" in export(checkpoint, there, out, "--overwrite", status=1)
    assert (out / "model-00001-of-00002.safetensors").read_text() == "old"


def test_the_current_folder_is_not_replaced(tmp_path, there, checkpoint):
    (tmp_path / "here").mkdir()
    said = mpc("export", checkpoint, "--like", there, "-o", ".", "--overwrite", status=1, cwd=tmp_path / "here")
    assert "it is the current folder" in said


# --- The example that fits ----------------------------------------------------------------------

def test_the_example_is_found(tmp_path, there):
    assert f"model llama of {LLAMA}, " in mpc("import", there, "-o", tmp_path / "w", status=0)
    tied = write_llama(tmp_path / "tied", {"tie_word_embeddings": True}, tensors(tied=True))
    assert f"model llama3 of {ROOT}/examples/llama3.2.mdl, " in mpc("import", tied, "-o", tmp_path / "w", status=0)
    said = mpc("import", tied, "--model", LLAMA, "-o", tmp_path / "x", status=1)
    assert f"mpc: note: an example fits this folder: --model {ROOT}/examples/llama3.2.mdl --map" in said
    phi = write_llama(tmp_path / "phi", {"model_type": "phi3"})
    assert f"{ROOT}/examples/maps/phi3.map:" in mpc("import", phi, "-o", tmp_path / "x", status=1)  # its tensors are others


@pytest.mark.parametrize("config, message", [
    ({"model_type": "x;id"}, 'says model_type: "x;id", and no example is of that type'),
    ({"model_type": None}, "has no model_type"),
    ({"hidden_act": "gelu"}, 'no example of model_type "llama" computes what'),
])
def test_no_example_fits(tmp_path, config, message):
    assert message in mpc("import", write_llama(tmp_path / "there", config), "-o", tmp_path / "x", status=1)


def test_an_installed_mpc_finds_its_examples(tmp_path, there):
    (tmp_path / "bin").mkdir()
    shutil.copy(MPC, tmp_path / "bin/mpc")
    shutil.copytree(ROOT / "examples", tmp_path / "share/mpc/examples")
    said = subprocess.run([tmp_path / "bin/mpc", "import", there, "-o", tmp_path / "w"], capture_output=True, text=True, check=True).stdout
    assert f"of {tmp_path}/share/mpc/examples/llama.mdl" in said
    shutil.rmtree(tmp_path / "share")
    done = subprocess.run([tmp_path / "bin/mpc", "import", there, "-o", tmp_path / "w"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "mpc does not find its examples" in done.stderr


def test_what_to_do_next_is_quoted_and_learns(tmp_path):
    folder = tmp_path / "it's a \x1b[31m$(id) \\ folder"
    write_llama(folder / "there")
    shutil.copy(LLAMA, folder / "my model.mdl")
    said = mpc("import", folder / "there", "--model", folder / "my model.mdl", "--map", ROOT / "examples/maps/llama.map", "-o", folder / "w", status=0)
    first, second = said.split("next: ")[1].splitlines()
    assert "\x1b" not in said
    for line, path in (first, folder / "my model.mdl"), (second, folder / "w"):
        words = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True).stdout.splitlines()
        assert str(path) in words, words
    assert "--set train.schedule.warmup=10" in first and second.endswith("--steps 100")
