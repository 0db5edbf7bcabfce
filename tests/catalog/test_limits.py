"""Limits: the table agrees with AWS's own models, and what keeps a number of its own agrees with the table."""

from __future__ import annotations

import re

import botocore.session
import pytest
from pydantic import TypeAdapter

from paddock.catalog.instances import instance
from paddock.catalog.limits import Limit, limit, limits, readings
from paddock.fleet.model.base import RetentionDays
from paddock.fleet.sizing.addresses import RESERVED_ADDRESSES
from paddock.fleet.sizing.capacity import address_limit

MODELLED = [row for row in limits().values() if row.model]


@pytest.mark.parametrize("row", MODELLED, ids=lambda row: row.key)
def test_a_limit_is_what_the_services_model_says(row: Limit) -> None:
    service, name = str(row.model).split(":")
    shape, _, member = name.partition(".")
    found = botocore.session.get_session().get_service_model(service).shape_for(shape)
    if not member:
        assert found.metadata["max"] == row.value
        return
    written = re.sub(r"<[^>]+>", "", found.members[member].documentation)
    most = re.search(r"gp3: .*? - ([\d,]+)|0-(\d+) instance types|maximum number is (\d+)|: 125 - (\d+)", written)
    assert most
    assert int(most[most.lastindex or 0].replace(",", "")) == row.value


def test_every_limit_names_a_dated_source() -> None:
    assert {row.key for row, _ in readings()} >= set(limits())
    assert all(source.as_of and source.url.startswith("https://") for _, source in readings())


def test_numbers_that_stand_elsewhere_are_those_of_the_table() -> None:
    assert limit("vpc.reserved-addresses") == RESERVED_ADDRESSES
    logs = botocore.session.get_session().get_service_model("logs").shape_for("PutRetentionPolicyRequest")
    days = re.findall(r"\d+", logs.members["retentionInDays"].documentation)
    assert tuple(map(int, days)) == tuple(TypeAdapter(RetentionDays).json_schema()["enum"])
    assert address_limit(instance("g5.12xlarge")) == limit("eks.pods-large-node")
    assert address_limit(instance("g6.4xlarge")) == limit("eks.pods-small-node")
