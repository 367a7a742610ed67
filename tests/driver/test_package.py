"""make deb: a package that has all that mpc needs, and works where it is unpacked."""
import os
import re
import shutil
import subprocess

import pytest
from conftest import HERE, ROOT, start

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"), reason="no dpkg-dev: no package is made")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deb")
    fast = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    done = subprocess.run(["sh", ROOT / "packaging/deb.sh", folder], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **fast})
    assert done.returncode == 0, done.stderr
    path, = folder.glob("mpc_*.deb")
    assert done.stdout.strip() == str(path)
    subprocess.run(["dpkg-deb", "-x", path, folder / "root"], check=True)
    return path


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()


def test_control(package):
    assert package.name == f"mpc_{field(package, 'Version')}_{field(package, 'Architecture')}.deb"
    needed = re.findall(r"(?:^|, )([\w.+-]+)", field(package, "Depends"))
    assert {"libc6", "libcjson1", "gcc", "libdnnl-dev", "libcjson-dev", "libssl-dev"} <= set(needed)
    assert field(package, "Recommends") == "libopenmpi-dev, openmpi-bin"  # of which trainers over TCP need none
    assert os.system("command -v lintian >/dev/null") or "E: " not in subprocess.run(
        ["lintian", package], capture_output=True, text=True).stdout


def test_same_files_as_make_install(package, tmp_path):
    subprocess.run(["make", "-s", "install", f"DESTDIR={tmp_path}", "PREFIX=/usr"], cwd=ROOT, check=True)
    files = lambda folder: {str(p.relative_to(folder)).removesuffix(".gz") for p in folder.rglob("*") if p.is_file()}
    assert files(package.parent / "root") - files(tmp_path) == {"usr/share/doc/mpc/copyright", "usr/share/doc/mpc/changelog"}
    assert files(tmp_path) <= files(package.parent / "root")


def test_compiles_where_it_is_unpacked(package, tmp_path):
    mpc = package.parent / "root/usr/bin/mpc"
    environment = {key: value for key, value in os.environ.items() if key != "MPC_RUNTIME"}
    subprocess.run([mpc, "compile", HERE / "tiny.mdl", "-o", tmp_path / "out", "--cflags=-O0"], check=True, env=environment)
    start([tmp_path / "out/trainer", "--plan"], tmp_path, 0)


@pytest.mark.parametrize("name", ["my folder", "it's"])
def test_a_folder_of_any_name(tmp_path, name):
    """What a part of the name names stays."""
    other = tmp_path / name.split()[0]
    other.mkdir(exist_ok=True)
    (other / "mine").touch()
    place = [f"DESTDIR={tmp_path / name}", "PREFIX=/usr"]
    subprocess.run(["make", "-s", "install", *place], cwd=ROOT, check=True)
    start([tmp_path / name / "usr/bin/mpc", "compile", HERE / "tiny.mdl", "-o", tmp_path / "out", "--cflags=-O0"], tmp_path, 0)
    subprocess.run(["make", "-s", "uninstall", *place], cwd=ROOT, check=True)
    assert [p for p in tmp_path.rglob("*") if p.is_file() and p.parent != tmp_path / "out"] == [other / "mine"]
