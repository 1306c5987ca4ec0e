"""Packages of a Debian suite, fetched by this machine's apt whatever it runs itself, with lists and caches of their own.

Nothing is installed, and the machine's own package lists stay as they are.  Standard library only.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from marathond.demo.base_image import debian_mirror
from marathond.demo.host import SetupError, apt_install, run_logged, tail

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
OFFICIAL_MIRROR = "http://deb.debian.org/debian"
"""For machines that are no Debian: their own mirror does not have it."""

FETCH_S = 300.0
UNPACK_S = 120.0


def unpack_packages(suite: str, packages: Sequence[str], root: Path, log: Path) -> Path:
    """Fetch exactly these packages, no dependencies, and unpack them together; the folder with ``usr``.

    :param root: for apt's lists and archives, emptied first; the caller removes it.
    :raises SetupError: there is no apt, or it cannot fetch them; one clear line.
    """
    root = root.absolute()
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SetupError(
            f"packages of Debian's {suite} are needed ({' '.join(packages)}), and apt-get and dpkg-deb fetch them: not found here"
        )
    if not KEYRING.exists():  # Ubuntu
        apt_install(["debian-archive-keyring"], log)
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("preferences.d", "sources.list.d", "lists/partial", "archives/partial", "debs", "unpacked"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    (root / "sources.list").write_text(f"deb [signed-by={KEYRING}] {debian_mirror() or OFFICIAL_MIRROR} {suite} main\n")
    # Settings of this machine's apt, proxies among them, hold: only where lists and archives lie is ours.
    places = {
        "Dir::State": root,
        "Dir::State::status": root / "status",
        "Dir::Cache": root,
        "Dir::Etc::sourcelist": root / "sources.list",
        "Dir::Etc::sourceparts": root / "sources.list.d",
        "Dir::Etc::preferencesparts": root / "preferences.d",
        "Acquire::Retries": 2,
        "APT::Sandbox::User": "root",
    }
    apt = [
        "env",
        "-C",
        str(root / "debs"),
        "apt-get",
        "-q",
        *(part for name, value in places.items() for part in ("-o", f"{name}={value}")),
    ]
    for command in ([*apt, "update"], [*apt, "download", *packages]):
        if (status := run_logged(command, log, FETCH_S)) != 0:
            raise SetupError(
                f"{' '.join(packages)} of Debian's {suite} could not be fetched (exit {status}); whole output: {log}", tail(log)
            )
    for archive in sorted((root / "debs").glob("*.deb")):
        if run_logged(["dpkg-deb", "-x", str(archive), str(root / "unpacked")], log, UNPACK_S) != 0:
            raise SetupError(f"{archive.name} of Debian's {suite} could not be unpacked; whole output: {log}", tail(log))
    return root / "unpacked"
