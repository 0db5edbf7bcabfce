"""Table of contents of Paddock: one line of help a task, the work in the package that the task names.

A task imports its package inside the function, so that `inv --list` starts in a moment and a runner needs no Pulumi.
"""

from __future__ import annotations

from invoke.collection import Collection

from paddock.tasks.build import (
    ami_list,
    ami_promote,
    ami_prune,
    build_ami,
    build_image,
    build_runner,
    images_check,
    images_list,
    images_size,
    push_runner,
)
from paddock.tasks.catalog import catalog_instances, catalog_refresh
from paddock.tasks.fleet import mirror, plan, schema
from paddock.tasks.gpu import GPU_TASKS
from paddock.tasks.house import check, lint, lock, test
from paddock.tasks.lab import lab_demo, lab_down, lab_status, lab_up

namespace = Collection(
    *(plan, schema, mirror, check, lint, lock, test),
    *(build_runner, build_image, push_runner, build_ami),
    images=Collection(images_list, images_check, images_size),
    ami=Collection(ami_list, ami_promote, ami_prune),
    catalog=Collection(catalog_instances, catalog_refresh),
    gpu=Collection(*GPU_TASKS),
    lab=Collection(lab_up, lab_status, lab_demo, lab_down),
)
