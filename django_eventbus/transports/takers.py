"""Who takes what is published: of a command one queue, of an event at least one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django_eventbus.findings import Finding, error, warning
from django_eventbus.patterns import matches, overlap
from django_eventbus.routing import is_for_commands, type_of
from django_eventbus.transports.contract import Published, QueueSpec

#: An exchange, what is bound to it, and by which key.
Binding = tuple[str, str, str]


def about_published(
    published: Iterable[Published], bindings: Iterable[Binding]
) -> Iterator[Finding]:
    """Yield what is published and nobody takes, and the commands that several queues take."""
    known = list(bindings)
    for each in published:
        takers = {queue for exchange, queue, key in known if _takes(exchange, key, each)}
        if not takers:
            yield warning(
                f"No queue is bound to take events of the type {each.type!r}.",
                "Deploy a subscription to it, or stop publishing it.",
            )
        elif is_for_commands(each.exchange) and len(takers) > 1:
            yield _two_queues(repr(each.type), takers)


def about_handled(queues: Sequence[QueueSpec], bindings: Iterable[Binding]) -> Iterator[Finding]:
    """Yield the commands of *queues* that another queue takes as well."""
    known = sorted(each for each in bindings if is_for_commands(each[0]))
    own = ((queue.name, exchange, key) for queue in queues for exchange, key in queue.bindings)
    for name, exchange, key in own:
        if is_for_commands(exchange):
            others = {queue for _, queue, theirs in known if _meet(exchange, key, theirs)}
            if others - {name}:
                yield _two_queues(f"by {key!r}", others | {name})


def _two_queues(what: str, queues: set[str]) -> Finding:
    return error(
        f"Commands {what} go to {len(queues)} queues, {', '.join(sorted(queues))}: each of them "
        "carries them out.",
        "Leave one of them to handle the command, and delete the binding of the others.",
    )


def _takes(exchange: str, key: str, published: Published) -> bool:
    if exchange != published.exchange:
        return False
    match type_of(exchange):
        case "fanout":
            return True
        case "direct":
            return key == published.routing_key
    return matches(key, published.routing_key)


def _meet(exchange: str, key: str, other: str) -> bool:
    return type_of(exchange) == "fanout" or overlap(key, other)
