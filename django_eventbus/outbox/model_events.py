"""Publish when a model is saved or deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, transaction
from django.db.models.fields.files import FieldFile
from django.db.models.signals import (
    ModelSignal,
    post_delete,
    post_save,
    pre_delete,
    pre_save,
)

from django_eventbus.events.event import Event
from django_eventbus.models import OutboxEvent
from django_eventbus.outbox.publish import publish

EventOf = type[Event] | str | None

CREATED, UPDATED, DELETED = "created", "updated", "deleted"
#: The attribute of an instance that holds its former row during a save, by id of ModelEvents.
_BEFORE = "_eventbus_before"


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
    QuerySet.update() send no signals: call publish_many() in addition.
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
    """The events of one model. disconnect() stops them."""

    model: type[models.Model]
    events: dict[str, EventOf]
    fields: tuple[models.Field[Any, Any], ...]
    when: Callable[[Any], bool]
    only_changed: bool
    once_per_transaction: bool

    def connect(self) -> None:
        for signal, receiver in self._receivers():
            signal.connect(receiver, self.model, weak=False, dispatch_uid=id(self))

    def disconnect(self) -> None:
        for signal, _ in self._receivers():
            signal.disconnect(sender=self.model, dispatch_uid=id(self))

    def _receivers(self) -> list[tuple[ModelSignal, Callable[..., None]]]:
        receivers: list[tuple[ModelSignal, Callable[..., None]]] = [
            (post_save, self._on_saved),
            (pre_delete, self._before_deletion),
            (post_delete, self._on_deleted),
        ]
        return [*receivers, (pre_save, self._before_saving)] if self.only_changed else receivers

    def _before_saving(self, instance: models.Model, raw: bool, using: str, **kwargs: Any) -> None:
        # Read from the row: the values that the instance was loaded with may be outdated.
        if not raw and instance.pk is not None:
            instance.__dict__.setdefault(_BEFORE, {})[id(self)] = self._row(instance, using)

    def _on_saved(
        self,
        instance: models.Model,
        created: bool,
        raw: bool,
        using: str,
        update_fields: Collection[str] | None,
        **kwargs: Any,
    ) -> None:
        if raw:
            # A fixture: its events were published when its data was created.
            return
        before = instance.__dict__.get(_BEFORE, {}).pop(id(self), {})
        values = self._values(instance, using, update_fields)
        if created:
            self._publish(CREATED, instance, values, using)
        elif not self.only_changed:
            self._publish(UPDATED, instance, values, using)
        elif changed := _changed(before, values):
            self._publish(UPDATED, instance, changed, using)

    def _before_deletion(self, instance: models.Model, using: str, **kwargs: Any) -> None:
        # The values must be read now, because the row will be deleted.
        if unknown := [each.attname for each in self.fields if not _is_known(each, instance)]:
            instance.refresh_from_db(using=using, fields=unknown)

    def _on_deleted(self, instance: models.Model, using: str, **kwargs: Any) -> None:
        self._publish(DELETED, instance, self._known(instance), using)

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

    def _values(
        self, instance: models.Model, using: str, saved: Collection[str] | None
    ) -> dict[str, Any]:
        """Return the saved values, which may differ from those of the instance."""
        is_known = all(_is_known(each, instance, saved) for each in self.fields)
        return self._known(instance) if is_known else self._row(instance, using)

    def _known(self, instance: models.Model) -> dict[str, Any]:
        # The instance may hold "7" where the row holds 7.
        values = ((each, each.value_from_object(instance)) for each in self.fields)
        return {each.name: _plain(each.to_python(value)) for each, value in values}

    def _row(self, instance: models.Model, using: str) -> dict[str, Any]:
        names = [each.name for each in self.fields]
        rows = self.model._base_manager.using(using).filter(pk=instance.pk)
        return next(iter(rows.values(*names)), {}) if names else {}


def _is_known(
    field: models.Field[Any, Any], instance: models.Model, saved: Collection[str] | None = None
) -> bool:
    """Whether the instance holds the same value as its row; *saved* are the fields of the save."""
    if field.attname in instance.get_deferred_fields() or field.generated:
        return False
    # Only the database knows the value of an expression such as F("stock") - 1.
    is_expression = hasattr(field.value_from_object(instance), "resolve_expression")
    return not is_expression and (
        saved is None or not {field.name, field.attname}.isdisjoint(saved)
    )


def _changed(before: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    missing = object()
    return {name: value for name, value in values.items() if before.get(name, missing) != value}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedInTransaction:
    """
    A commit hook that does nothing and records what a transaction published for an instance.

    Django keeps the hook until the transaction ends, and drops it if its savepoint is rolled
    back. Nothing else has the same lifetime.
    """

    watch: ModelEvents
    key: str
    kind: str
    message_id: str
    payload: dict[str, Any]

    def __call__(self) -> None: ...


def _former(watch: ModelEvents, key: str, using: str) -> PublishedInTransaction | None:
    """Return what the current transaction last published for the same instance."""
    for hook in (entry[1] for entry in reversed(connections[using].run_on_commit)):
        if isinstance(hook, PublishedInTransaction) and (hook.watch, hook.key) == (watch, key):
            return hook
    return None


def _publish_once(
    watch: ModelEvents, kind: str, payload: dict[str, Any], key: str, using: str
) -> None:
    """Replace what the transaction published before for the same instance."""
    former = _former(watch, key, using)
    if former:
        payload = {**former.payload, **payload}
        OutboxEvent.objects.using(using).filter(message_id=former.message_id).delete()
    if former and former.kind == CREATED:
        kind = "" if kind == DELETED else CREATED
    event = watch.events.get(kind)
    published = publish(*_publication(event, payload), key=key, using=using) if event else ""
    transaction.on_commit(
        PublishedInTransaction(
            watch=watch, key=key, kind=kind, message_id=str(published), payload=payload
        ),
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
        raise TypeError(
            f"{model.__name__} has no column {name!r}. fields= accepts names of columns"
        )
    return found


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, FieldFile) else value
