"""Events of models that are saved and deleted."""

from __future__ import annotations

import json

import pytest
from django.core import serializers
from django.db import transaction
from django.db.models import F

from django_eventbus import Event, publish_model_events
from django_eventbus.exceptions import InvalidPayload
from django_eventbus.models import OutboxEvent
from tests.shop.models import Parent, Product
from tests.support.tables import table

pytestmark = pytest.mark.django_db(transaction=True)

ALL = {"created": "product.created", "updated": "product.updated", "deleted": "product.deleted"}


@pytest.fixture
def watch():
    watches = []

    def start(**options):
        watches.append(publish_model_events(Product, **{**ALL, **options}))

    yield start
    for each in watches:
        each.disconnect()


def published():
    rows = OutboxEvent.objects.order_by("id")
    return [(row.type.removeprefix("product."), json.loads(bytes(row.body))) for row in rows]


def test_a_model_that_is_created_changed_and_deleted_is_published_each_time(watch):
    watch(fields=["name", "stock"])

    product = Product.objects.create(name="chair", stock=3)
    key = product.pk
    product.stock = 2
    product.save()
    product.delete()

    assert published() == [
        ("created", {"id": key, "name": "chair", "stock": 3}),
        ("updated", {"id": key, "name": "chair", "stock": 2}),
        ("deleted", {"id": key, "name": "chair", "stock": 2}),
    ]
    assert set(OutboxEvent.objects.values_list("key", flat=True)) == {str(key)}


def test_without_fields_only_the_primary_key_is_published(watch):
    watch()

    product = Product.objects.create(name="secret")

    assert published() == [("created", {"id": product.pk})]


def test_an_event_that_is_not_named_is_not_published(watch):
    watch(updated=None, deleted=None)

    product = Product.objects.create()
    product.save()
    product.delete()

    assert [kind for kind, _ in published()] == ["created"]


def test_it_is_rolled_back_with_the_data(watch):
    watch()

    with transaction.atomic():
        Product.objects.create()
        transaction.set_rollback(True)

    assert not published()


def test_a_fixture_publishes_nothing(watch):
    watch()
    written = serializers.serialize("json", [Product(pk=5, name="chair")])

    for each in serializers.deserialize("json", written):
        each.save()

    assert Product.objects.get().pk == 5
    assert not published()


def test_when_decides(watch):
    watch(when=lambda product: product.stock > 0)

    Product.objects.create(stock=0)
    product = Product.objects.create(stock=1)

    assert published() == [("created", {"id": product.pk})]


def test_only_the_changed_fields_are_published_on_request(watch):
    watch(fields=["name", "stock"], only_changed=True)
    key = Product.objects.create(name="chair", stock=3).pk
    product = Product.objects.get(pk=key)

    product.stock = 2
    product.save()
    product.note = "not watched"
    product.save()
    product.name = "table"
    product.save(update_fields=["name"])

    assert published()[1:] == [
        ("updated", {"id": key, "stock": 2}),
        ("updated", {"id": key, "name": "table"}),
    ]


def test_a_field_that_was_not_loaded_is_compared_with_its_row(watch):
    watch(fields=["name", "stock"], only_changed=True)
    key = Product.objects.create(name="chair", stock=3).pk

    product = Product.objects.only("name").get(pk=key)
    product.stock = 9
    product.save()
    product = Product.objects.only("name").get(pk=key)
    product.name = "table"
    product.save()

    assert published()[1:] == [
        ("updated", {"id": key, "stock": 9}),
        ("updated", {"id": key, "name": "table"}),
    ]


def test_what_was_not_loaded_is_published_all_the_same(watch):
    watch(fields=["name", "stock"])
    key = Product.objects.create(name="chair", stock=3).pk

    Product.objects.only("name").get(pk=key).save()
    Product.objects.only("name").get(pk=key).delete()

    assert published()[1:] == [
        ("updated", {"id": key, "name": "chair", "stock": 3}),
        ("deleted", {"id": key, "name": "chair", "stock": 3}),
    ]


@pytest.mark.parametrize("only_changed", [False, True])
def test_a_change_that_was_not_saved_is_not_published(watch, only_changed):
    watch(fields=["name", "stock"], only_changed=only_changed)
    product = Product.objects.create(name="chair", stock=3)

    product.name, product.stock = "table", 9
    product.save(update_fields=["name"])
    product.save(update_fields=["stock"])

    first, second = [payload for _, payload in published()[1:]]
    assert (first["name"], first.get("stock", 3)) == ("table", 3)
    assert (second.get("name", "table"), second["stock"]) == ("table", 9)


def test_a_change_is_published_by_the_save_that_is_not_rolled_back(watch):
    watch(fields=["stock"], only_changed=True)
    product = Product.objects.create(stock=3)
    product.stock = 2

    with transaction.atomic():
        product.save()
        transaction.set_rollback(True)
    product.save()

    assert published()[1:] == [("updated", {"id": product.pk, "stock": 2})]


def test_what_somebody_else_wrote_meanwhile_is_no_reason_to_miss_a_change(watch):
    watch(fields=["stock"], only_changed=True)
    product = Product.objects.create(stock=3)
    Product.objects.update(stock=5)

    product.save()

    assert published()[1:] == [("updated", {"id": product.pk, "stock": 3})]


def test_a_change_inside_a_value_is_a_change(watch):
    watch(fields=["details"], only_changed=True)
    product = Product.objects.create(details={"sizes": [1]})

    product.details["sizes"].append(2)
    product.save()

    assert published()[1:] == [("updated", {"id": product.pk, "details": {"sizes": [1, 2]}})]


def test_two_watches_of_a_model_do_not_disturb_each_other(watch):
    watch(fields=["name"], only_changed=True)
    watch(fields=["stock"], only_changed=True)
    product = Product.objects.create(name="chair", stock=3)

    product.stock = 2
    product.save()

    assert published()[2:] == [("updated", {"id": product.pk, "stock": 2})]


def test_a_number_that_was_given_as_text_is_published_as_a_number(watch):
    watch(fields=["stock"], only_changed=True)
    product = Product.objects.create(stock="3")

    product.save()

    assert published() == [("created", {"id": product.pk, "stock": 3})]


class Rarity(Product):
    """Saved as a model of its own, as Django has it: the parent sends no signals."""

    class Meta:
        app_label = "shop"
        proxy = True


def test_a_proxy_is_watched_by_its_own_name(watch):
    watch()

    Rarity.objects.create()

    assert not published()


def test_a_value_that_only_the_database_knows_is_read_from_it(watch):
    watch(fields=["stock", "maker"])
    maker = Parent.objects.create()
    product = Product.objects.create(stock=3, maker=maker)

    product.stock = F("stock") - 1
    product.save()

    assert published()[-1] == ("updated", {"id": product.pk, "stock": 2, "maker": maker.pk})


def test_such_a_value_is_published_when_its_row_is_deleted(watch):
    watch(fields=["stock"])
    product = Product.objects.create(stock=3)
    key = product.pk

    product.stock = F("stock") - 1
    product.save()
    product.delete()

    assert published()[-1] == ("deleted", {"id": key, "stock": 2})


def test_once_per_transaction_the_last_state_is_published(watch):
    watch(fields=["stock"], once_per_transaction=True)

    with transaction.atomic():
        product = Product.objects.create(stock=1)
        other = Product.objects.create(stock=7)
        product.stock = 2
        product.save()
    with transaction.atomic():
        for stock in (3, 4):
            product.stock = stock
            product.save()

    assert published() == [
        ("created", {"id": other.pk, "stock": 7}),
        ("created", {"id": product.pk, "stock": 2}),
        ("updated", {"id": product.pk, "stock": 4}),
    ]


def test_once_per_transaction_changed_fields_add_up(watch):
    watch(fields=["name", "stock"], once_per_transaction=True, only_changed=True)
    with transaction.atomic():
        product = Product.objects.create(name="chair", stock=1)
        product.stock = 2
        product.save()
    with transaction.atomic():
        product.stock = 3
        product.save()
        product.name = "table"
        product.save()

    assert published() == [
        ("created", {"id": product.pk, "name": "chair", "stock": 2}),
        ("updated", {"id": product.pk, "name": "table", "stock": 3}),
    ]


def test_what_a_transaction_makes_and_deletes_is_not_published(watch):
    watch(once_per_transaction=True)

    with transaction.atomic():
        product = Product.objects.create()
        product.delete()
    with transaction.atomic():
        product = Product.objects.create()
    key = product.pk
    with transaction.atomic():
        product.save()
        product.delete()

    assert published() == [("created", {"id": key}), ("deleted", {"id": key})]


def test_a_savepoint_that_is_rolled_back_takes_its_event_along(watch):
    watch(fields=["stock"], once_per_transaction=True)
    product = Product.objects.create(stock=1)

    with transaction.atomic():
        product.stock = 2
        with transaction.atomic():
            product.save()
            transaction.set_rollback(True)
        product.stock = 3
        product.save()

    assert published()[1:] == [("updated", {"id": product.pk, "stock": 3})]


def test_a_save_after_the_savepoint_is_published_though_the_first_was_undone(watch):
    watch(fields=["stock"], once_per_transaction=True)
    product = Product.objects.create(stock=1)

    with transaction.atomic():
        product.stock = 2
        product.save()
        with transaction.atomic():
            product.stock = 3
            product.save()
            transaction.set_rollback(True)

    assert published()[1:] == [("updated", {"id": product.pk, "stock": 2})]


class ProductCreated(Event, type="product.created", version=2):
    id: int
    stock: int


def test_an_event_class_is_validated(watch):
    watch(created=ProductCreated, fields=["stock"])

    product = Product.objects.create(stock=3)

    assert published() == [("created", {"id": product.pk, "stock": 3})]
    assert OutboxEvent.objects.get().version == 2


def test_a_field_that_the_event_class_lacks_is_refused(watch):
    watch(created=ProductCreated)

    with pytest.raises(InvalidPayload, match="stock"):
        Product.objects.create()


@table("name", ["nothing", "product", "pk"])
def test_a_name_that_is_no_column_is_refused(name):
    with pytest.raises(TypeError, match=f"Product has no column '{name}'"):
        publish_model_events(Product, created="product.created", fields=[name])
