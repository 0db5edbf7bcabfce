"""What Paddock can do, as a table of contents: one line of help a task, the work in the room that the task names.

A task imports its room inside the function, so that `inv --list` starts in a moment and a runner needs no Pulumi.
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
from paddock.tasks.gpu import (
    gpu_allocate,
    gpu_cuda_info,
    gpu_deallocate,
    gpu_export,
    gpu_health,
    gpu_info,
    gpu_leases,
    gpu_list,
    gpu_mcp,
    gpu_memory_info,
    gpu_ml_env,
    gpu_monitor,
    gpu_processes,
    gpu_render,
    gpu_renew,
    gpu_reset,
    gpu_run,
    gpu_topology,
    gpu_workflow,
)
from paddock.tasks.house import check, lint, lock, test
from paddock.tasks.lab import lab_demo, lab_down, lab_status, lab_up

namespace = Collection(
    *(plan, schema, mirror, check, lint, lock, test),
    *(build_runner, build_image, push_runner, build_ami),
    images=Collection(images_list, images_check, images_size),
    ami=Collection(ami_list, ami_promote, ami_prune),
    catalog=Collection(catalog_instances, catalog_refresh),
    gpu=Collection(
        *(gpu_list, gpu_info, gpu_memory_info, gpu_cuda_info, gpu_processes, gpu_topology),
        *(gpu_allocate, gpu_renew, gpu_deallocate, gpu_leases, gpu_run),
        *(gpu_health, gpu_monitor, gpu_export, gpu_reset, gpu_render),
        *(gpu_ml_env, gpu_workflow, gpu_mcp),
    ),
    lab=Collection(lab_up, lab_status, lab_demo, lab_down),
)
