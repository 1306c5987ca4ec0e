"""What the words mean by which ``status`` tells why open cells wait, and what to do: beside :mod:`.outcomes`.

Owns the words for a person.  Which words there are is :mod:`marathond.core.plan`'s; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping

from marathond.core.audit.catalogue import Meaning

WAITS: Mapping[str, Meaning] = {
    "BREAKER": Meaning(
        "Several trials failed in a row by infrastructure, so admission is closed for a while; then one trial probes whether it is over.",
        "Read what failed (`marathonctl findings`, `marathonctl show TRIAL`) and repair it; `marathonctl resume` ends the pause at once.",
    ),
    "CONCURRENCY": Meaning(
        "As many trials are in work as are wanted at one time: the two numbers are trials in work and slots.",
        "Nothing, if the host is busy enough; else `marathonctl set concurrency=N`; `marathonctl capacity` says what one more gives.",
    ),
    "CPU": Meaning(
        "The next cell's cores do not fit beside those of the trials in work: the two numbers are cores in use and cores to give away.",
        "Wait, or `marathonctl set cpu_overcommit=2` if the tasks leave their cores idle; the order is kept, so smaller cells wait, too.",
    ),
    "DISK": Meaning(
        "A file system that the daemon or the engine writes to is below its floor, or cannot be looked at: nothing is admitted.",
        "Make room: `marathonctl sizes` and `marathonctl prune` for artifacts, the engine's own prune for images; it goes on by itself.",
    ),
    "DRAINING": Meaning(
        "Somebody asked that trials in work end and no new one begins.",
        "`marathonctl resume` if that was not meant; otherwise wait for the trials that `marathonctl status` lists.",
    ),
    "ENGINE": Meaning(
        "The engine does not answer, its host's size is unknown, or what it runs cannot be seen: nothing is admitted.",
        "Look at the engine's service and log (`marathonctl preflight` asks it); running agents go on, and so does admission by itself.",
    ),
    "GATEWAY": Meaning(
        "The gateway to the model provider shows no sign of life, so nothing is admitted, for any arm.",
        "See `marathonctl findings` and the daemon's log: it starts the gateway again by itself and says why that does not succeed.",
    ),
    "IMAGE": Meaning(
        "The task's image is being built or pulled, or its turn to be made has not come.",
        "Wait; a build's output is in the folder builds below state_dir, and a task whose image cannot be had parks with the reason.",
    ),
    "INVARIANT": Meaning(
        "The ledger breaks one of its own rules, so admission is closed; trials in work are finished.",
        "Read `marathonctl findings`; back the ledger up, and `marathonctl resume` only when the cause is understood.",
    ),
    "MEM": Meaning(
        "The next cell's memory does not fit beside that of the trials in work: the two numbers are MB in use and MB to give away.",
        "Wait, or `marathonctl set memory_overcommit=1.5` if the tasks stay far below what they declare: beyond it the kernel kills.",
    ),
    "MONEY": Meaning(
        "The next block of cells does not fit below the campaign's cap, or what was spent is unknown; blocks that have begun go on.",
        "Raise money.campaign_cap_usd or let it end there; where it says unknown, give the model a price in money.prices.",
    ),
    "NETPOOL": Meaning(
        "No network is free for the next cell, or how many there are cannot be seen; tasks without a network pass.",
        "See `marathonctl pool --foreign` for networks of others; a wider network.range or a higher network.cap makes more.",
    ),
    "PAUSED": Meaning(
        "Somebody closed admission; trials in work go on.",
        "`marathonctl resume` opens it; the reason and who gave it stand in `marathonctl status`.",
    ),
    "STOP_LOSS": Meaning(
        "Something was found that makes going on worthless, so admission is closed for all arms until a person opens it.",
        "Read the finding (`marathonctl findings`), repair what it names, then `marathonctl resume`.",
    ),
    "VERIFIER": Meaning(
        "The verifier of a task that times code runs alone, or waits to: nothing may begin beside it.",
        "Wait, it is bounded by the verifier's deadline; verifier.exclusive says for which tasks.",
    ),
}

OTHER_WORDS: Mapping[str, str] = {"MEMORY": "MEM", "NETWORK": "NETPOOL", "PAUSE": "PAUSED", "DRAIN": "DRAINING"}
"""What a person may type for one of these."""
