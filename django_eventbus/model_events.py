"""Publish when a model is saved or deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, transaction
from django.db.models.fields.files import FieldFile
from django.db.models.signals import post_delete, post_init, post_save

from django_eventbus.events import Event
from django_eventbus.models import OutboxEvent
from django_eventbus.outbox import publish

EventOf = type[Event] | str | None

CREATED, UPDATED, DELETED = "created", "updated", "deleted"
#: Where an instance keeps what its row held when it was last read or written.
_LOADED = "_eventbus_loaded"


def publish_model_events(  # noqa: PLR0913
    model: type[models.Model],
    *,
    created: EventOf = None,
    updated: EventOf = None,
    deleted: EventOf = None,
    fields: Iterable[str] = (),
    when: Callable[[Any], bool] | None = None,
    only_changed: bool = False,
    once_per_transaction: bool = False,
) -> ModelEvents:
    """
    Publish an event whenever an instance of *model* is created, updated or deleted.

    Its payload is the primary key and *fields*. bulk_create(), bulk_update() and
    QuerySet.update() send no signals: use publish_many() beside them.
    """
    watch = ModelEvents(
        model=model,
        events={CREATED: created, UPDATED: updated, DELETED: deleted},
        fields=tuple(_field(model, name) for name in fields),
        when=when or (lambda instance: True),
        only_changed=only_changed,
        once_per_transaction=once_per_transaction,
    )
    watch.connect()
    return watch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelEvents:
    """What is published for one model. disconnect() ends it."""

    model: type[models.Model]
    events: dict[str, EventOf]
    fields: tuple[models.Field[Any, Any], ...]
    when: Callable[[Any], bool]
    only_changed: bool
    once_per_transaction: bool

    def connect(self) -> None:
        post_save.connect(self._on_saved, self.model, weak=False, dispatch_uid=id(self))
        post_delete.connect(self._on_deleted, self.model, weak=False, dispatch_uid=id(self))
        if self.only_changed:
            post_init.connect(self._on_loaded, self.model, weak=False, dispatch_uid=id(self))

    def disconnect(self) -> None:
        for signal in (post_save, post_delete, post_init):
            signal.disconnect(sender=self.model, dispatch_uid=id(self))

    def _on_loaded(self, instance: models.Model, **kwargs: Any) -> None:
        setattr(instance, _LOADED, self._known(instance))

    def _on_saved(
        self, instance: models.Model, created: bool, raw: bool, using: str, **kwargs: Any
    ) -> None:
        if raw:
            # A fixture: its events were published when its data was made.
            return
        values = self._values(instance, using)
        changed = self._changed(instance, values, created)
        if self.only_changed:
            setattr(instance, _LOADED, dict(values))
        if created:
            self._publish(CREATED, instance, values, using)
        elif changed or not self.only_changed:
            self._publish(UPDATED, instance, changed if self.only_changed else values, using)

    def _on_deleted(self, instance: models.Model, using: str, **kwargs: Any) -> None:
        self._publish(DELETED, instance, self._values(instance, using), using)

    def _publish(
        self, kind: str, instance: models.Model, values: dict[str, Any], using: str
    ) -> None:
        if not self.when(instance):
            return
        key = instance._meta.pk
        payload = {key.name if key else "id": _plain(instance.pk), **values}
        if self.once_per_transaction and connections[using].in_atomic_block:
            _publish_once(self, kind, payload, str(instance.pk), using)
        elif event := self.events[kind]:
            publish(*_publication(event, payload), key=instance.pk, using=using)

    def _changed(
        self, instance: models.Model, values: dict[str, Any], created: bool
    ) -> dict[str, Any]:
        before = {} if created else getattr(instance, _LOADED, {})
        missing = object()
        return {name: value for name, value in values.items() if before.get(name, missing) != value}

    def _known(self, instance: models.Model) -> dict[str, Any]:
        deferred = instance.get_deferred_fields()
        watched = (each for each in self.fields if each.attname not in deferred)
        return {each.name: _plain(each.value_from_object(instance)) for each in watched}

    def _values(self, instance: models.Model, using: str) -> dict[str, Any]:
        values = self._known(instance)
        if any(hasattr(value, "resolve_expression") for value in values.values()):
            # Saved as F("stock") - 1: only the database knows the value.
            names = [each.name for each in self.fields]
            rows = self.model._base_manager.using(using).filter(pk=instance.pk)
            values = {name: _plain(value) for name, value in (rows.values(*names).get()).items()}
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """
    A commit hook that does nothing: what a transaction has published for an instance.

    It is with the connection for as long as the transaction is open and the savepoint it was
    made in stands, which nothing else tells.
    """

    watch: ModelEvents
    key: str
    kind: str
    message_id: str
    payload: dict[str, Any]

    def __call__(self) -> None: ...


def _former(watch: ModelEvents, key: str, using: str) -> Published | None:
    """Return what the transaction at hand has last published for the same instance."""
    for hook in (entry[1] for entry in reversed(connections[using].run_on_commit)):
        if isinstance(hook, Published) and (hook.watch, hook.key) == (watch, key):
            return hook
    return None


def _publish_once(
    watch: ModelEvents, kind: str, payload: dict[str, Any], key: str, using: str
) -> None:
    """Publish instead of what the transaction has published before for the same instance."""
    former = _former(watch, key, using)
    if former:
        payload = {**former.payload, **payload}
        OutboxEvent.objects.using(using).filter(message_id=former.message_id).delete()
    if former and former.kind == CREATED:
        kind = "" if kind == DELETED else CREATED
    event = watch.events.get(kind)
    published = publish(*_publication(event, payload), key=key, using=using) if event else ""
    transaction.on_commit(
        Published(watch=watch, key=key, kind=kind, message_id=str(published), payload=payload),
        using=using,
    )


def _publication(event: type[Event] | str, payload: dict[str, Any]) -> tuple[Any, ...]:
    return (event, payload) if isinstance(event, str) else (event.validated(payload),)


def _field(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    try:
        found = model._meta.get_field(name)
    except FieldDoesNotExist:
        found = None
    if not isinstance(found, models.Field) or not found.concrete or found.many_to_many:
        raise TypeError(f"{model.__name__} has no column {name!r} to publish")
    return found


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, FieldFile) else value
