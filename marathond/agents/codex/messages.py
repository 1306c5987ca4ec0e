"""The requests to codex 0.171's app-server that are used here, and their answers.  See ``shapes`` for what they are made of."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field

from marathond.agents.codex.shapes import (
    Goal,
    GoalStatus,
    Item,
    SkillsOf,
    Thread,
    Turn,
    Wire,
)

Result = TypeVar("Result", bound=Wire)


class Request(Wire, Generic[Result]):
    """A request; ``METHOD`` is its name, ``RESULT`` the type of its answer."""

    METHOD: ClassVar[str]
    RESULT: ClassVar[type[Wire]]

    def params(self) -> dict[str, Any]:
        """What was given; what was left out or is None is not sent."""
        return self.model_dump(mode="json", exclude_none=True)


class Nothing(Wire):
    """An answer without content."""


class Initialized(Wire):
    user_agent: str
    codex_home: str


class ClientInfo(Wire):
    name: str
    version: str


class Capabilities(Wire):
    experimental_api: bool = True
    opt_out_notification_methods: list[str] = Field(default_factory=list)


class Initialize(Request[Initialized]):
    METHOD = "initialize"
    RESULT = Initialized
    client_info: ClientInfo
    capabilities: Capabilities


class SkillsFound(Wire):
    data: list[SkillsOf]


class SkillsList(Request[SkillsFound]):
    METHOD = "skills/list"
    RESULT = SkillsFound
    cwds: list[str]
    force_reload: bool = True


class Feature(Wire):
    name: str
    enabled: bool


class FeaturesPage(Wire):
    data: list[Feature]
    next_cursor: str | None


class FeaturesList(Request[FeaturesPage]):
    """The features in force, one page; ``next_cursor`` None: the last."""

    METHOD = "experimentalFeature/list"
    RESULT = FeaturesPage
    limit: int = 1000
    cursor: str | None = None
    thread_id: str | None = None


class ConfigInForce(Wire):
    """``config``: the effective one, snake_case keys as in config.toml."""

    config: dict[str, Any]
    origins: dict[str, Any]


class ConfigRead(Request[ConfigInForce]):
    METHOD = "config/read"
    RESULT = ConfigInForce
    cwd: str | None = None


class ThreadReady(Wire):
    """The answer of thread/start and thread/resume: the thread with what is in EFFECT for it.

    ``sandbox``: an object whose ``type`` says which.  ``approval_policy``: a text, or an object for a granular one.
    """

    thread: Thread
    model: str
    model_provider: str
    approval_policy: Any
    sandbox: dict[str, Any]
    reasoning_effort: str | None
    cwd: str
    instruction_sources: list[str]


class ThreadStart(Request[ThreadReady]):
    METHOD = "thread/start"
    RESULT = ThreadReady
    cwd: str
    approval_policy: str = "never"
    sandbox: str = "danger-full-access"
    model: str | None = None


class ThreadResume(Request[ThreadReady]):
    """Join a thread that is loaded, or load it from its rollout.  Overrides nothing: what is in effect stays."""

    METHOD = "thread/resume"
    RESULT = ThreadReady
    thread_id: str
    exclude_turns: bool = True


class LoadedPage(Wire):
    data: list[str]


class LoadedList(Request[LoadedPage]):
    METHOD = "thread/loaded/list"
    RESULT = LoadedPage
    limit: int = 1000


class ThreadGot(Wire):
    thread: Thread


class ThreadRead(Request[ThreadGot]):
    METHOD = "thread/read"
    RESULT = ThreadGot
    thread_id: str


class TurnsPage(Wire):
    data: list[Turn]
    next_cursor: str | None


class TurnsList(Request[TurnsPage]):
    METHOD = "thread/turns/list"
    RESULT = TurnsPage
    thread_id: str
    items_view: str = "notLoaded"
    sort_direction: Literal["asc", "desc"] = "asc"
    limit: int = 100
    cursor: str | None = None


class ItemEntry(Wire):
    turn_id: str
    item: Item


class ItemsPage(Wire):
    data: list[ItemEntry]
    next_cursor: str | None


class ItemsList(Request[ItemsPage]):
    METHOD = "thread/items/list"
    RESULT = ItemsPage
    thread_id: str
    turn_id: str | None = None
    sort_direction: Literal["asc", "desc"] = "asc"
    limit: int = 50
    cursor: str | None = None


class TextInput(Wire):
    text: str
    type: Literal["text"] = "text"


class TurnBegun(Wire):
    turn: Turn


class TurnStart(Request[TurnBegun]):
    """``client_user_message_id``: a mark of the caller's, found again as ``client_id`` of the turn's userMessage item.  It tells after a
    lost connection whether this request was carried out.
    """

    METHOD = "turn/start"
    RESULT = TurnBegun
    thread_id: str
    input: list[TextInput]
    client_user_message_id: str


class TurnSteer(Request[Nothing]):
    METHOD = "turn/steer"
    RESULT = Nothing
    thread_id: str
    expected_turn_id: str
    input: list[TextInput]


class TurnInterrupt(Request[Nothing]):
    METHOD = "turn/interrupt"
    RESULT = Nothing
    thread_id: str
    turn_id: str


class GoalIs(Wire):
    goal: Goal


class GoalSet(Request[GoalIs]):
    METHOD = "thread/goal/set"
    RESULT = GoalIs
    thread_id: str
    objective: str | None = None
    status: GoalStatus | None = None
    origin: Literal["user", "automatic"] | None = None
    token_budget: int | None = None


class GoalMayBe(Wire):
    goal: Goal | None


class GoalGet(Request[GoalMayBe]):
    METHOD = "thread/goal/get"
    RESULT = GoalMayBe
    thread_id: str


class GoalCleared(Wire):
    cleared: bool


class GoalClear(Request[GoalCleared]):
    METHOD = "thread/goal/clear"
    RESULT = GoalCleared
    thread_id: str


class TerminalsClean(Request[Nothing]):
    METHOD = "thread/backgroundTerminals/clean"
    RESULT = Nothing
    thread_id: str
