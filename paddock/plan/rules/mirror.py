"""Charts and images that a program pulls, which come from the mirror where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from infra.helm.charts import CHARTS
from paddock.fleet.model.mirror import ALL, registry
from paddock.plan import fields
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.resource_types import RELEASE
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.inputs.pods import chart, pods


@dataclass(frozen=True, slots=True)
class Pulled:
    """An image that nodes pull, and what makes them."""

    image: str
    resource: Resource
    where: str


def images(context: Context) -> Iterator[Pulled]:
    """Yield every image of a program's pods and charts.

    Without those of EKS's add-ons and AMIs, which are in Amazon's own registry, and those that workflows name.
    """
    for pod in pods(context):
        for container in pod.containers:
            if (name := fields.text(container, "image")) and not fields.is_unknown(name):
                yield Pulled(name, pod.resource, pod.where)
    for release in context.all(RELEASE):
        values = fields.get(release.inputs, "values")
        known_chart = CHARTS.get(chart(release))
        for image in known_chart.images if known_chart and not fields.is_unknown(values) else ():
            repository = fields.text(values, *image.at, "repository") or image.repository
            yield Pulled(
                f"{repository}:{fields.text(values, *image.at, 'tag') or image.tag}", release, "its chart's pods"
            )


class Mirrored(Rule):
    id = "CON011"
    severity: ClassVar[Severity] = "warning"
    title = "Where there is a mirror, every chart and image comes from it"
    why = "Where public registries are out of reach, one forgotten image is a pod that waits for ever."
    fix = 'mirror: an entry for the registry or chart that is named, or "*" for all others'

    def check(self, context: Context) -> Iterator[Violation]:
        mirror = context.fleet.mirror if context.fleet else None
        if mirror and mirror.prefixes:
            for pulled in images(context):
                if not mirror.holds(pulled.image):
                    host = registry(pulled.image)
                    message = f"{pulled.where} pull {pulled.image}, and mirror.images has no entry for {host}"
                    yield violation(pulled.resource, message, fix=f"mirror.images.{host}: where its copy is")
        if mirror and mirror.sources and ALL not in mirror.sources:
            for release in context.all(RELEASE):
                if (name := chart(release)) in CHARTS and name not in mirror.sources:
                    message = f"mirror.charts has no entry for {name}, so it comes from its publisher"
                    yield violation(release, message, fix=f"mirror.charts.{name}: where its copy is")


RULES = (Mirrored(),)
