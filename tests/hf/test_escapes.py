"""Names from files are shown, and never control the terminal: escapes are fed into every reader."""
import json
import os
import re
import subprocess
import unicodedata

import numpy as np
import pytest
from common import MPC, ROOT
from small_llama import CONFIG, tensors, write_llama

LLAMA = ROOT / "examples/llama.mdl"
EVIL = {"escape": "a\x1b[31mb\x07\x7f\r", "line": "a\nmpc: all is well", "c1": "a\x9b31mb", "right to left": "a\u202eb\u2066", "hidden": "a\u200bb"}


def visible(text):
    return all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") for c in text)


def said(*words, lines=None, status=(1, 2)):
    done = subprocess.run([word if isinstance(word, bytes) else str(word) for word in words], capture_output=True, timeout=60, cwd=ROOT,
                          env={**os.environ, "MPC_PEAK_FLOPS": "1e9"})
    text = (done.stdout + done.stderr).decode()  # which must be UTF-8
    assert done.returncode in status and visible(text), ascii(text)
    assert "\nmpc: all is well" not in text
    return text


@pytest.fixture(params=EVIL)
def evil(request):
    return EVIL[request.param]


def shown(text):
    return "".join(c if visible(c) and c != "\n" else "".join(f"\\x{byte:02X}" for byte in c.encode()) for c in text)


def header_of(entries, data=b"\0\0\0\0"):
    text = json.dumps(entries, ensure_ascii=False).encode()
    return len(text).to_bytes(8, "little") + text + data


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def import_(folder, tmp_path, *options):
    return said(MPC, "import", folder, "--model", LLAMA, "-o", tmp_path / "x", *options)


# --- Folders ------------------------------------------------------------------------------------

def test_an_index(tmp_path, evil):
    there = write_llama(tmp_path / "there")
    (there / "model.safetensors").unlink()
    index = there / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": evil}}))
    assert f"there/{shown(evil)}: No such file" in import_(there, tmp_path)
    index.write_text(json.dumps({"weight_map": {evil: 5}}))
    assert f"for '{shown(evil)}'" in import_(there, tmp_path)


@pytest.mark.parametrize("entries", [lambda evil: {evil: ENTRY}, lambda evil: {"a": ENTRY | {"dtype": evil}},
                                     lambda evil: {evil: {"dtype": "F32"}}, lambda evil: {evil: ENTRY | {"shape": [2]}}])
def test_a_header(tmp_path, evil, entries):
    import_(write_llama(tmp_path / "there", None, header_of(entries(evil))), tmp_path)


def test_a_configuration(tmp_path, evil):
    import_(write_llama(tmp_path / "there", {"hidden_act": evil}), tmp_path)
    import_(write_llama(tmp_path / "there", {"hidden_act": {evil: [evil]}}), tmp_path)
    said(MPC, "import", write_llama(tmp_path / "there", {"model_type": evil}), "-o", tmp_path / "x")
    twice = json.dumps(CONFIG)[:-1] + f", {json.dumps(evil)}: 1, {json.dumps(evil)}: 2}}"
    assert f"has the key '{shown(evil)}' twice" in import_(write_llama(tmp_path / "there", twice), tmp_path)


def test_names_of_files(tmp_path, evil):
    there = write_llama(tmp_path / f"there{evil}")
    done = said(MPC, "import", there, "-o", tmp_path / f"x{evil}", status=(0,))
    assert shown(evil) in done
    os.symlink(evil, there / f"{evil}.json")
    text = said(MPC, "export", tmp_path / f"x{evil}", "--like", there, "-o", tmp_path / "out")
    assert f"{shown(evil)}.json is a link to {shown(evil)}: " in text


def test_a_map(tmp_path, evil):
    there = write_llama(tmp_path / "there")
    lines = (ROOT / "examples/maps/llama.map").read_text()
    for line in f"need {evil} = 1", f"need a = {evil}", f'need a = "{evil}"', f"set {evil} = a", f"{evil} [ff] = a", f"a.{evil} [vocab, embed] = embedding":
        (tmp_path / "a.map").write_text(lines + line + "\n")
        import_(there, tmp_path, "--map", tmp_path / "a.map")


# --- The compiler -------------------------------------------------------------------------------

def test_models_and_programs(tmp_path, evil):
    for name, text in ("a.mdl", f"model {evil} {{ }}"), ("a.mdl", f"dim a = {evil}"), ("a.mir", f"module {evil}"), ("a.mir", f"%{evil} = add %a, %b"):
        (tmp_path / name).write_text(text)
        said(MPC, "check" if name == "a.mdl" else "print", tmp_path / name)
    said(MPC, "check", tmp_path / evil)
    said(MPC, "check", LLAMA, "--set", f"train.batch={evil}")
    said(MPC, "check", LLAMA, "--set", f"{evil}=1")
    said(MPC, "check", LLAMA, "-D", f"{evil}={evil}")
    said(MPC, "check", LLAMA, f"--{evil}")
    said(MPC, evil)
    said(MPC, "check", os.fsencode(tmp_path) + b"/\xff\xc2")


def test_logs(tmp_path, evil):
    log = tmp_path / f"a{evil}.jsonl"
    log.write_text(json.dumps({"step": 1, evil: evil}) + "\n" + evil + "\n")
    said(MPC, "plot", log)
    log.write_text(json.dumps({"step": 1, "loss": 2}) + "\n" + json.dumps({"step": 2, "loss": 1}) + "\n")
    said(MPC, "plot", log, "-o", tmp_path / "page.html", "--title", evil, status=(0,))
    said(MPC, "plot", log, "-o", tmp_path / "own.html", status=(0,))
    assert visible((tmp_path / "page.html").read_text()) and visible((tmp_path / "own.html").read_text())


def test_traces(tmp_path, evil):
    for rank, model in (0, evil), (1, "b"):
        facts = {"format": "mpc trace 1", "run": f"{evil}{rank}", "model": model, "rank": rank, "ranks": 2}
        (tmp_path / f"{rank}.json").write_text(f'{{"otherData": {json.dumps(facts, ensure_ascii=False)}, "traceEvents": [\n]}}\n')
    assert shown(evil) in said(MPC, "trace", "merge", tmp_path / "0.json", tmp_path / "1.json")


def test_messages_have_one_way_out():
    """In the compiler: error_at and report_error; in trainers: print_line of runtime/error.c (and the log of NVRTC)."""
    own = {"ir/diag.c", "ir/arena.c", "ir/module.c", "ir/interp/interp_tensor.c", "driver/main.c", "driver/options.c", "codegen/text/fill.c"}
    for top in "ir", "frontend", "passes", "codegen", "driver":
        for path in (ROOT / top).rglob("*.[chly]"):
            if str(path.relative_to(ROOT)) not in own:
                assert not re.search(r'printf\([^;]*"mpc: error', path.read_text()), path
    for path in (ROOT / "runtime").rglob("*.c"):
        assert path.name in ("error.c", "kernels.c") or not re.search(r"fprintf\(stderr|fputs\([^;]*stderr|perror", path.read_text()), path


# --- Trainers -----------------------------------------------------------------------------------

@pytest.mark.parametrize("entries", [lambda evil: {evil: ENTRY}, lambda evil: {"a": ENTRY | {"dtype": evil}}, lambda evil: {evil: {"dtype": "F32"}},
                                     lambda evil: {"__metadata__": {"step": evil}, "wte": ENTRY}])
def test_checkpoints(tmp_path, trainer, evil, entries):
    (tmp_path / "t.u16").write_bytes(b"\1\0" * 100)
    (tmp_path / "w").write_bytes(header_of(entries(evil)))
    said(trainer, "--steps", 1, "--data", tmp_path / "t.u16", "--load", tmp_path / "w")
    (tmp_path / f"w{evil}").write_bytes(header_of(entries(evil)))
    assert shown(evil) in said(trainer, "--steps", 1, "--data", tmp_path / "t.u16", "--load", tmp_path / f"w{evil}")


def test_data(tmp_path, trainer, evil):
    np.save(tmp_path / "a.npy", np.zeros(100, np.uint16))
    raw = (tmp_path / "a.npy").read_bytes()
    for old in b"'<u2'", b"(100,)":
        new = raw.replace(old, b"'" + evil.encode() + b"'").replace(b"    \n", b"\n")
        (tmp_path / "a.npy").write_bytes(new)
        said(trainer, "--steps", 1, "--data", tmp_path / "a.npy")
    (tmp_path / evil).mkdir()
    said(trainer, "--steps", 1, "--data", tmp_path / evil)
    (tmp_path / evil / f"{evil}.u16").write_bytes(b"\1")
    assert shown(evil) in said(trainer, "--steps", 1, "--data", tmp_path / evil)
    (tmp_path / evil / f"{evil}.npy").write_bytes(b"\1")
    said(trainer, "--steps", 1, "--data", tmp_path / evil)
    (tmp_path / evil / "sub").mkdir()
    said(trainer, "--steps", 1, "--data", tmp_path / evil)
    said(trainer, "--steps", 1, "--data", tmp_path / f"no{evil}")
    said(trainer, "--data", tmp_path / "no", f"--{evil}", evil)
    said(trainer, "--steps", evil)


def test_pipes_and_devices_do_not_hang_a_trainer(tmp_path, trainer):
    (tmp_path / "t.u16").write_bytes(b"\1\0" * 100)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe.u16")
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "m.bin").write_bytes(b"\1\0" * 100)
    os.mkfifo(tmp_path / "m.idx")
    for name in "folder", "pipe.bin", "m.bin", "/dev/zero":
        assert "it is a device or a pipe" in said(trainer, "--steps", 1, "--data", tmp_path / name)
    for name in "pipe.bin", "/dev/zero":
        assert "it is a device or a pipe" in said(trainer, "--steps", 1, "--data", tmp_path / "t.u16", "--load", tmp_path / name)
        said(trainer, "--steps", 1, "--data", tmp_path / "t.u16", "--load-part", f"h={tmp_path / name}")
    assert "it is a directory" in said(trainer, "--steps", 1, "--data", tmp_path / "t.u16", "--load", tmp_path / "folder")
