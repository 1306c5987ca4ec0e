"""Variables of a verifier that asks a judge model: named in the configuration, filled in when its way to the model is open (fault c14).

Owns the placeholders that stand for them in between.  A task writes ``[verifier.env] OPENAI_API_KEY = "${OPENAI_API_KEY}"``; where the
configuration's ``gateway.verifier_env`` names that variable, the task gets a placeholder at plan time, whatever the daemon's own
environment holds, and at verification the trial's dummy key.  Such a variable is for verifiers alone: everywhere else it is not set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_PREFIX, _SUFFIX = "${marathond.verifier_env:", "}"


def seen_by_tasks(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """``environ`` as tasks may see it: each of ``names`` is a placeholder, so that no key of the daemon's own reaches a container."""
    return {**environ, **{name: f"{_PREFIX}{name}{_SUFFIX}" for name in names}}


def is_placeholder(value: str) -> bool:
    return value.startswith(_PREFIX) and value.endswith(_SUFFIX)


def asks_judge(verifier_env: Mapping[str, str]) -> bool:
    """Whether a task's verifier wants one of the configured variables."""
    return any(is_placeholder(value) for value in verifier_env.values())


def filled(verifier_env: Mapping[str, str], templates: Mapping[str, str], *, base_url: str, key: str) -> dict[str, str]:
    """The verifier's environment: all configured variables, and the task's own, which may give them other names.

    :param templates: ``gateway.verifier_env``; ``{base_url}`` and ``{key}`` stand for the trial's way.
    """
    values = {name: text.replace("{base_url}", base_url).replace("{key}", key) for name, text in templates.items()}
    own = {name: values[_named(value)] if is_placeholder(value) else value for name, value in verifier_env.items()}
    return {**values, **own}


def _named(placeholder: str) -> str:
    return placeholder[len(_PREFIX) : -len(_SUFFIX)]
