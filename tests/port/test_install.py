"""What make deb and make install give, used by somebody who has no source tree: it is hidden from the commands here."""
import os
import pathlib
import shutil
import tempfile

import pytest
from conftest import ROOT, make, start

NOBODY = "65534"

# The tree is hidden in a name space of mounts; root becomes another user in it.
HIDDEN = """set -eu
mount -t tmpfs none "$0"
[ ! -e "$0/Makefile" ]
cd "$1"
[ "$2" != 0 ] && user= || user="setpriv --reuid $3 --regid $3 --clear-groups"
HOME=$1 exec $user sh -euc "$4"
"""

TASKS = """
mpc --version
mpc help compile >/dev/null
mpc check "$share/examples/gpt2.mdl"
seq 30000 >text
mpc compile "$share/examples/chars.mdl" -o out -D layers=1 --set train.batch=4 --cflags=-O0 --verify-passes
out/trainer --data text --steps 2 --save ckpt.safetensors --sample 8 >sample
mpc compile "$share/examples/chars.mdl" -o two -D layers=1 --set train.batch=4 --cflags=-O0 --mesh=dp=2 --comm=tcp
two/trainer --data text --steps 2 --rank 1 --ranks 2 --master 127.0.0.1:$port & two/trainer --data text --steps 2 --rank 0 --ranks 2 --master 127.0.0.1:$port
wait $!
mpc compile "$share/examples/chars.mdl" -o mpi -D layers=1 --set train.batch=4 --cflags=-O0 --mesh=dp=2
mpirun --oversubscribe -n 2 mpi/trainer --data text --steps 2
"""


def use(prefix, home, port):
    os.chown(home, int(NOBODY), int(NOBODY)) if os.geteuid() == 0 else None
    tasks = f"PATH={prefix}/bin:$PATH share={prefix}/share/mpc port={port}\n{TASKS}"
    environment = {"OMP_NUM_THREADS": "1", "MPC_RUNTIME": "", "CC": "", "PYTHONPATH": ""}
    may = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    return start(*may, "sh", "-c", HIDDEN, ROOT, home, os.geteuid(), NOBODY, tasks, cwd="/", **environment).stdout


@pytest.fixture
def place():
    """A folder that others can enter, unlike pytest's."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mpc install"))
    folder.chmod(0o755)
    (folder / "home").mkdir()
    yield folder
    shutil.rmtree(folder)


def test_a_prefix(place):
    prefix = place / "opt"
    make("install", f"PREFIX={prefix}")
    assert "step 2/2" in use(f"'{prefix}'", place / "home", 29611)
    make("uninstall", f"PREFIX={prefix}")
    assert not [path for path in prefix.rglob("*") if path.is_file()]


def test_a_staged_folder(place):
    """As a package's build has it: installed under DESTDIR, used elsewhere."""
    make("install", f"DESTDIR={place}/stage", "PREFIX=/usr/local")
    (place / "stage/usr/local").rename(place / "moved")
    assert "step 2/2" in use(f"'{place}/moved'", place / "home", 29612)


@pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"), reason="no dpkg-dev: no package is made")
def test_a_package(place):
    package = start("sh", "packaging/deb.sh", place).stdout.strip()
    start("dpkg-deb", "-x", package, place / "root")
    assert "step 2/2" in use(f"'{place}/root/usr'", place / "home", 29613)
