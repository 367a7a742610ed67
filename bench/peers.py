"""What mpc is compared with: packages from PyPI in virtual environments under build/."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def find(say, name, *installs):
    """The interpreter of build/NAME, which is made if it is not there, with each of `installs` an argument list of pip install.
    Whether it holds what is wanted is for the caller to see: an installation may fail."""
    venv = ROOT / "build" / name
    python = venv / "bin" / "python"
    if not python.exists():
        say(f"installing {name} from PyPI into build/{name}")
        try:
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        except (subprocess.CalledProcessError, OSError) as error:
            say(f"   {error}")
        for packages in installs:
            install(say, python, packages)
    return python


def install(say, python, packages):
    try:
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        say(f"   {error}")


def version_of(python, module):
    """The version of a module that this interpreter imports, or None."""
    if not python.exists():
        return None
    check = subprocess.run([python, "-c", f"import {module}; print({module}.__version__)"], capture_output=True, text=True)
    return check.stdout.strip() if check.returncode == 0 else None
