"""Tables that handlers write to."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """What a handler did. Nothing is unique here: a second effect has to show."""

    event_id = models.TextField()
    subscription = models.TextField()
    note = models.TextField(blank=True, default="")


class Parent(models.Model):
    name = models.TextField(blank=True, default="")


class Child(models.Model):
    """Its foreign key is checked at commit, so a handler can leave it broken."""

    parent = models.ForeignKey(Parent, on_delete=models.CASCADE)


class Product(models.Model):
    """Its changes are published."""

    name = models.TextField(default="chair")
    stock = models.IntegerField(default=0)
    note = models.TextField(blank=True, default="")
    maker = models.ForeignKey(Parent, null=True, on_delete=models.CASCADE)
    details = models.JSONField(default=dict)
