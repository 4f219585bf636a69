"""Events and commands: the classes that projects define, publish and receive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Self, dataclass_transform

import msgspec

from django_eventbus.events.text import Sentence
from django_eventbus.events.text import gettext_noop as _
from django_eventbus.exceptions import InvalidPayload, UnknownVersion

_TOO_OLD = _(
    "%(event)s is version %(version)s and cannot read version %(older)s: override upgrade_from()"
)
_TOO_NEW = _(
    "%(type)s version %(newer)s is newer than %(event)s version %(version)s: deploy the consumer"
)

#: The event whose handler runs in this thread: the cause of the events that the handler publishes.
cause: ContextVar[Meta | None] = ContextVar("django_eventbus.cause", default=None)
#: An event cannot have these fields: they would hide attributes that the bus uses.
_RESERVED = frozenset(
    ("meta", "event_type", "event_version", "upgrade_from", "received", "validated")
)
_LAST_VERSION = 2**30
_SHORT = 255
#: The options of msgspec.Struct that an event class may set.
_OPTIONS = frozenset(
    (
        "rename", "omit_defaults", "forbid_unknown_fields", "frozen", "eq", "order", "kw_only",
        "repr_omit_defaults", "gc", "weakref", "cache_hash", "tag", "tag_field", "dict",
    )
)  # fmt: skip
_TYPE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The metadata of a received event: everything except its payload."""

    id: str
    type: str
    version: int = 1
    source: str = ""
    queue: str = ""
    subscription: str = ""
    attempt: int = 1
    tries: int = 1
    round: int = 0
    key: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    routing_key: str = ""
    published_at: datetime | None = None
    is_debug: bool = False
    headers: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """Whether a failure of this attempt parks the message."""
        return self.attempt >= self.tries


@contextmanager
def caused_by(meta: Meta | None) -> Iterator[None]:
    """Make *meta* the cause of the events that are published inside the block."""
    token = cause.set(meta)
    try:
        yield
    finally:
        cause.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedEvent:
    """The event that a pattern subscription receives; its payload is plain JSON."""

    type: str
    payload: Any
    meta: Meta


def is_type(text: object) -> bool:
    """Whether *text* is a dotted name that a broker can use for routing."""
    return isinstance(text, str) and bool(_TYPE.fullmatch(text)) and len(text) <= _SHORT


@dataclass_transform(kw_only_default=True, frozen_default=True)
class EventType(msgspec.StructMeta):
    """The metaclass of events: reads type= and version= from the class statement."""

    event_type: str
    event_version: int

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        type: str = "",
        version: int = 1,
        **options: Any,
    ) -> EventType:
        if unknown := options.keys() - _OPTIONS:
            raise TypeError(f"{name} has {min(unknown)}=; an Event accepts type= and version=")
        if type and not is_type(type):
            raise TypeError(
                f"{name} has type={type!r}, which is not a dotted name such as 'order.placed'"
            )
        # "dict": a received event keeps its meta in __dict__.
        options = {"kw_only": True, "frozen": True, **options, "dict": True}
        cls = super().__new__(mcls, name, bases, namespace, **options)
        if reserved := _RESERVED.intersection(cls.__struct_fields__):
            raise TypeError(f"{name} cannot have a field {min(reserved)!r}: the name is reserved")
        if not isinstance(version, int) or not 1 <= version <= _LAST_VERSION:
            raise TypeError(
                f"{name} has version={version!r}, which is not a whole number of at least 1"
            )
        cls.event_type = type
        cls.event_version = version
        return cls

    # StructMeta.__init__ would reject the keywords of __new__.
    def __init__(cls, *args: Any, **options: Any) -> None:  # noqa: N805
        pass


class Event(msgspec.Struct, metaclass=EventType):
    """
    A typed event: subclass it with annotated fields and a type.

    A reader ignores unknown fields, which a newer publisher may have added.
    """

    event_type: ClassVar[str]
    event_version: ClassVar[int]

    @property
    def meta(self) -> Meta:
        """Return the metadata, which only received events have."""
        try:
            meta: Meta = self.__dict__["meta"]
        except KeyError:
            raise AttributeError(
                f"This {type(self).__name__} was not received, so it has no meta."
            ) from None
        return meta

    @classmethod
    def upgrade_from(cls, version: int, payload: Any) -> Any:
        """Convert the *payload* of an older *version* to the fields of this class. Override it."""
        own = {"event": cls.__name__, "version": cls.event_version}
        raise InvalidPayload(Sentence(_TOO_OLD, older=version, **own))

    @classmethod
    def received(cls, payload: Any, meta: Meta) -> Self:
        """Build the event from a received *payload*, upgraded and validated."""
        if meta.version > cls.event_version:
            own = {"event": cls.__name__, "version": cls.event_version}
            raise UnknownVersion(Sentence(_TOO_NEW, type=meta.type, newer=meta.version, **own))
        if meta.version < cls.event_version:
            payload = cls.upgrade_from(meta.version, payload)
        event = cls.validated(payload)
        event.__dict__["meta"] = meta
        return event

    @classmethod
    def validated(cls, payload: Any) -> Self:
        """Build the event from plain JSON values. InvalidPayload names the wrong field."""
        try:
            # str_keys: JSON has only text keys, also for a field of the type dict[int, …].
            return msgspec.convert(payload, cls, str_keys=True)
        except msgspec.ValidationError as error:
            raise InvalidPayload(f"{cls.__name__}: {error}") from None


class Command(Event):
    """
    A typed command: subclass it as an Event, send it with send_command().

    It is a request to do something, and only one queue receives it.
    """


def event_classes(parent: type[Event]) -> Iterator[type[Event]]:
    """Yield all direct and indirect subclasses of *parent*."""
    for each in parent.__subclasses__():
        yield each
        yield from event_classes(each)
