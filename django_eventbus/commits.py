"""Was it committed? A block that ends without an error says nothing."""

from __future__ import annotations

from django.db import connections, transaction

from django_eventbus.exceptions import NotCommitted

#: libpq's name for a transaction that an error has ended.
_IN_ERROR = 3


class CommitMarker:
    """
    The only witness of a commit.

    A block can end without an exception and without a commit; a hook can raise after one.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self._fired = False

    def register(self) -> None:
        # First, so that no hook of the handler can raise before it.
        transaction.on_commit(self._fire, using=self.using)

    def _fire(self) -> None:
        self._fired = True

    @property
    def has_fired(self) -> bool:
        return self._fired or self._waits_for_test_case

    @property
    def _waits_for_test_case(self) -> bool:
        # Inside a TestCase nothing ever commits; a hook that was not thrown away stands for it.
        connection = connections[self.using]
        hooks = [hook for _, hook, *_ in connection.run_on_commit]
        return connection.in_atomic_block and self._fire in hooks


def refuse_broken_transaction(using: str) -> None:
    """Raise NotCommitted if a COMMIT on *using* would be answered with a silent ROLLBACK."""
    # PostgreSQL answers COMMIT of an aborted transaction with ROLLBACK and no error, and
    # Django would fire the commit hooks: a handler that swallowed an SQL error looks fine.
    connection = connections[using]
    if connection.vendor != "postgresql" or connection.connection is None:
        return
    if connection.connection.info.transaction_status == _IN_ERROR:
        raise NotCommitted(
            "the handler swallowed a database error, which had already ended its transaction: "
            "wrap the statement in transaction.atomic()"
        )
