"""Rows about the engine, its images and what a container on it can reach.

Owns the reading of what a shell in an image said of its C library.  Must not know Docker.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from marathond.core.preflight.rows import Row, count, named, not_needed, ok, red, unknown, warn

SURVEY = """echo shell
for f in /lib/ld-musl-*.so.1; do [ -e "$f" ] && echo "musl ${f##*/}"; done
command -v bash >/dev/null 2>&1 && echo bash
getconf GNU_LIBC_VERSION 2>/dev/null && exit 0
for f in /lib/*-linux-gnu*/libc.so.6 /lib64/libc.so.6 /usr/lib/*-linux-gnu*/libc.so.6 /usr/lib64/libc.so.6 /lib/libc.so.6; do
[ -x "$f" ] && "$f" 2>/dev/null && exit 0
done
exit 0"""
"""Asked of a shell in an image; built-ins only, but for what tells the version: getconf, or the C library itself, which is a program."""

_GLIBC = re.compile(r"(?:^glibc |GNU C Library .*? version )(\d+\.\d+)", re.MULTILINE)


def engine(version: str, api: str, url: str) -> Row:
    return ok("engine", f"Docker {version}, API {api}, at {url}")


def engine_away(why: str) -> Row:
    return red("engine", why, "start Docker, or set engine.url (or DOCKER_HOST) to the engine that runs")


@dataclass(frozen=True, slots=True)
class ProxySeen:
    """A proxy that somebody was told to use.  ``address``: without user and password.  ``why``: what failed, empty when it answered;
    ``sees`` False: it cannot be asked from here."""

    whose: str
    address: str
    why: str = ""
    sees: bool = True


def engine_proxy(proxies: Sequence[ProxySeen]) -> list[Row]:
    """One row for each proxy; one that says so when there is none."""
    if not proxies:
        return [not_needed("engine_proxy", "neither the engine nor engine.build_args names a proxy")]
    rows = []
    for proxy in proxies:
        if not proxy.sees:
            rows.append(unknown("engine_proxy", f"{proxy.address}: {proxy.why}", "ask it from the engine's own host", proxy.whose))
        elif proxy.why:
            todo = "start the proxy, or take it out of the engine's settings (builds and pulls go through it)"
            rows.append(red("engine_proxy", f"{proxy.address}: {proxy.why}", todo, proxy.whose))
        else:
            rows.append(ok("engine_proxy", f"{proxy.address} answers", proxy.whose))
    return rows


def bind_mounts(state_dir: str, problems: Sequence[str]) -> Row:
    """``problems``: by name, empty when a file arrived in the container with its content and one came back."""
    if problems:
        todo = "run the engine on this host, or move daemon.state_dir to where both see the same files"
        return red("bind_mounts", "; ".join(problems), todo)
    return ok("bind_mounts", f"files below {state_dir} arrive in a container and come back, and its processes are seen here")


def base_images(users: Mapping[str, Collection[str]], absent: Collection[str], unclear: Mapping[str, str]) -> Row:
    """``users``: image → tasks that still need it here; ``absent``: of these; ``unclear``: task → what could not be read of it."""
    if absent:
        who = named(f"{image} ({named(users[image])})" for image in absent)
        return red("base_images", f"not on the engine: {who}", "docker pull each, or marathonctl prebuild where a registry is reached")
    if unclear:
        words = named(f"{task}: {why}" for task, why in unclear.items())
        return unknown("base_images", words, "give the build argument a default, or look yourself")
    if not users:
        return not_needed("base_images", "every image is there already")
    return ok("base_images", f"{count(len(users), 'image')} there: {named(users)}")


def images_built(total: int, missing: Mapping[str, str]) -> Row:
    """``missing``: task (and role) → the image it waits for."""
    if missing:
        words = f"{len(missing)} of {total} missing: {named(missing)}"
        return red("images_built", words, "marathonctl prebuild")
    if not total:
        return not_needed("images_built", "no task that runs needs an image")
    return ok("images_built", f"all {total} there")


@dataclass(frozen=True, slots=True)
class Libc:
    """``name``: ``glibc``, ``musl`` or empty: no word of either.  ``version`` only of glibc."""

    name: str
    version: tuple[int, int] | None
    bash: bool

    def words(self) -> str:
        version = "" if self.version is None else f" {self.version[0]}.{self.version[1]}"
        shells = "bash and sh" if self.bash else "sh"
        return f"{self.name or 'no C library known'}{version}, {shells}"


def read_survey(said: str) -> Libc:
    """What :data:`SURVEY` printed.  An image with both libraries (a glibc layer upon Alpine) is what its programs are made for: musl."""
    lines = said.splitlines()
    if any(line.startswith("musl ") for line in lines):
        return Libc("musl", None, "bash" in lines)
    found = _GLIBC.search(said)
    version = None if found is None else tuple(map(int, found[1].split(".")))
    return Libc("glibc" if found else "", None if version is None else (version[0], version[1]), "bash" in lines)


def image_libc(tasks: Collection[str], libc: Libc, cannot: Mapping[str, str], tried: Collection[str]) -> Row:
    """:param tried: what arms bring into the container and what was run there; ``cannot``: of these → what the image said."""
    subject, words = named(tasks), libc.words()
    if cannot:
        said = "; ".join(f"{what} cannot run: {why}" for what, why in sorted(cannot.items()))
        return red("image_libc", f"{words}; {said}", "the task parks for all arms: use an image with a newer glibc, or exclude it", subject)
    if tried:
        words += f"; {named(tried)} {'runs' if len(set(tried)) == 1 else 'run'} there"
    if libc.name == "musl":
        return warn("image_libc", words, "nothing to do: what the arms bring runs; other programs of glibc would not", subject)
    if libc.version is None:
        return unknown("image_libc", words, "look into it: docker run --rm IMAGE ldd --version", subject)
    return ok("image_libc", words, subject)


def image_dead(tasks: Collection[str], why: str) -> Row:
    """The engine made the container, and no shell started in it."""
    return red("image_libc", f"no shell starts: {why}", "trials need sh in their image; rebuild it, or exclude the task", named(tasks))


def image_absent(tasks: Collection[str]) -> Row:
    return unknown("image_libc", "the image is not there yet", "marathonctl prebuild, then again", named(tasks))


@dataclass(frozen=True, slots=True)
class Reached:
    """What was tried from inside a container's network: name of the target → what happened, empty when it was reached.

    ``control``: why the listener of ours could not even be reached from the host, so that not reaching it proves nothing.
    """

    host: Mapping[str, str]
    port: Mapping[str, str]
    internet: Mapping[str, str]
    control: str = ""

    @staticmethod
    def names(targets: Mapping[str, str]) -> list[str]:
        return [name for name, why in targets.items() if not why]


def egress_none(seen: Reached) -> Row:
    """Of a container of a task without network: nothing may be reached (fault b15)."""
    reached = [*seen.names(seen.host), *seen.names(seen.port), *seen.names(seen.internet)]
    if reached:
        todo = "do not start: tasks without network would have one; look at the engine's runtime and network plugins"
        return red("egress_none", f"a container without network reaches {named(reached)}", todo)
    if seen.control:
        return unknown("egress_none", f"the probe itself does not work here: {seen.control}", "look at this host's firewall")
    tried = len(seen.host) + len(seen.port) + len(seen.internet)
    return ok("egress_none", f"reaches neither this host nor the gateway's port nor the Internet ({tried} tried)")


def egress_public(seen: Reached, proxy: Mapping[str, str], names: str = "") -> Row:
    """Of a container of a task with a network.

    :param proxy: of network.runtime_proxy, as in :class:`Reached`.  ``names``: why names are not resolved; empty when they are.
    """
    internet, ways = seen.names(seen.internet), seen.names(proxy)
    rest = f"names: {names or 'yes'}; this host's ports: {'yes' if seen.names(seen.host) else 'no'}"
    todo = "open it, set network.runtime_proxy, or know that tasks with a network have none here"
    if internet and names:
        return warn("egress_public", f"Internet by address: yes; {rest}", "give the engine a resolver (dns in its daemon.json)")
    if internet:
        return ok("egress_public", f"Internet: yes ({named(internet)}); {rest}")
    if ways:
        return ok("egress_public", f"Internet: only through {named(ways)}; {rest}")
    why = next((f"{name}: {words}" for name, words in [*proxy.items(), *seen.internet.items()]), "nothing was tried")
    return warn("egress_public", f"Internet: no ({why}); {rest}", todo)


def network_refused(why: str) -> Row:
    return red("egress_public", f"no network can be made: {why}", "see marathonctl pool, and network.range and network.mode")


def gpus(asks: Collection[str], parks: Collection[str], offered: Sequence[str]) -> Row:
    """:param asks: tasks; ``parks``: those of them that this version does not run; ``offered``: what the engine has."""
    if not asks:
        return not_needed("gpus", "no task asks for one")
    have = f"the engine offers {named(offered)}" if offered else "the engine offers none"
    run = [task for task in asks if task not in parks]
    if run and not offered:
        return red("gpus", f"asked for by {named(run)}; {have}", "install the engine's GPU runtime, or exclude them")
    if left := [task for task in asks if task in parks]:
        return warn("gpus", f"asked for by {named(left)}, which park: not supported; {have}", "exclude them (campaign.exclude)")
    return ok("gpus", f"asked for by {named(run)}; {have}")
