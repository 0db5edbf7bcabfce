"""Registry of everything that a plan can report. Rules register themselves; all other findings are listed here."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.plan.finding import FindingKind
from paddock.plan.rules import RENAMED, RULES, STALE

FAMILIES: Mapping[str, str] = {
    "PAD": "Safety",
    "CON": "Consistency",
    "SUP": "Suppressions",
    "CFG": "Configuration",
    "FIT": "Fit",
    "CMP": "Compatibility",
    "CST": "Cost",
    "RSZ": "Instance types and disks",
    "SRV": "Serving",
    "QUO": "Quotas and addresses",
    "CAT": "Catalog",
}
"""First three letters of an id -> family."""

_LISTED: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "rules": (
        (STALE, "error", "A suppression excuses nothing"),
        (RENAMED, "warning", "A suppression names its rule by an old id"),
    ),
    "plan": (
        ("CFG003", "info", "No runner uses a pool"),
        ("CFG012", "error", "A Capacity Block has ended"),
        ("CFG013", "warning", "A pool buys in zones where its reservation is not"),
        ("CAT001", "info", "Facts of the catalog are older than they should be"),
        ("CFG006", "info", "What jobs reach besides the internet"),
        ("CFG007", "info", "Network policies in somebody else's cluster"),
    ),
    "ways_out": (
        ("CFG002", "warning", "The network has no NAT, and some parts need the internet"),
        ("CFG010", "warning", "A part needs a service of AWS to which the network has no way"),
    ),
    "before_up": (
        ("CFG001", "step", "The credential that runners register with is not set"),
        ("CFG004", "step", "Values of an example are still in the stack file"),
        ("CFG008", "step", "A secret of serving is not set"),
        ("CFG009", "step", "A repository that pushes images is named without its ids"),
        ("CFG011", "step", "Who runs pulumi up must be among the administrators of the cluster"),
        ("CFG005", "step", "The cluster's API can be reached from inside the VPC only"),
        ("QUO001", "step", "The fleet needs more of a quota than a new account has"),
    ),
    "fit_findings": (
        ("FIT001", "error", "A runner fits on no instance type of its pool"),
        ("FIT002", "error or warning", "A runner fits on some instance types of its pool only"),
        ("FIT003", "warning or info", "A runner asks for more memory than an autoscaler expects of a new node"),
        ("FIT004", "warning or info", "Runners that fill a node leave GPUs that none of them can use"),
        ("FIT005", "warning", "A runner's maximum is more than its pool can hold"),
        ("FIT006", "error", "Idle runners need more nodes than the pool may have"),
        ("FIT007", "warning", "System nodes cannot hold the runner pods of all jobs"),
        ("FIT008", "info", "The memory of a booted node is an estimate"),
        ("FIT009", "error or warning", "A pool's maxPods is too large for its addresses, or too small for a job"),
    ),
    "serving.fit_findings": (
        ("SRV001", "error or warning", "A served model does not fit the memory of a GPU"),
        ("SRV002", "error or warning", "A replica's pod fits on no, or not every, instance type of its pools"),
        ("SRV003", "error or warning", "A served model has more replicas than its pools can hold"),
        ("SRV004", "error", "A replica has more GPUs than an instance type of its pools"),
        ("SRV005", "error or warning", "Served models together outgrow their pool"),
        ("SRV006", "warning", "A change of served models needs more nodes than the pool may have"),
        ("SRV007", "info", "A served model has random weights"),
        ("SRV008", "error or info", "Ray's head fits on no system node, or that is not known"),
        ("SRV009", "warning or info", "Nothing keeps the state of Ray's head"),
        ("SRV010", "error or info", "CUDA of Ray's image on GPUs and drivers of a served model's pool"),
    ),
    "compatibility.software": (
        ("CMP001", "error, warning or info", "CUDA of an image against the driver of the nodes"),
        ("CMP002", "error or warning", "CUDA of an image against the GPU"),
        ("CMP003", "error or info", "Driver of the nodes against GPU and instance family"),
    ),
    "compatibility.lifecycle": (
        ("CMP004", "warning or info", "Support of the driver branch"),
        ("CMP005", "error or warning", "Node image against the cluster's Kubernetes"),
        ("CMP006", "warning or info", "Age of the node image"),
        ("CMP007", "error, warning or info", "Support of the cluster's Kubernetes on EKS"),
        ("CMP008", "error", "Labels of scale sets in the runner controller"),
        ("CMP009", "error or warning", "Labels of scale sets in GitHub Enterprise Server"),
        ("CMP010", "error, warning or info", "Age of the GitHub runner"),
    ),
    "compatibility.faults": (
        ("CMP011", "error, warning or info", "Known faults of versions in use"),
        ("CMP012", "error, warning or info", "Settings of a node that its image is too old for"),
    ),
    "cost.estimate": (("CST001", "warning or info", "Prices that are not known"),),
    "cost.rightsizing": (
        ("RSZ001", "info", "Another instance type with the same GPU costs less"),
        ("RSZ002", "info", "Another GPU with as much memory costs less"),
        ("RSZ003", "warning or info", "A spot pool has few instance types"),
        ("RSZ004", "warning", "Spot costs nearly as much as on demand"),
        ("RSZ005", "info", "Spot nodes of a type are often interrupted"),
        ("RSZ006", "info", "A fast root volume next to local NVMe"),
    ),
    "quota": (
        ("QUO002", "info", "The default of a quota is not known"),
        ("QUO003", "error or warning", "A private subnet has too few addresses"),
        ("QUO004", "info", "The size of a private subnet is not in the stack"),
        ("QUO005", "error", "System nodes have too few addresses for the listeners of all runners"),
    ),
}
"""Module below `paddock.plan` -> (id, severity, title)."""

FINDINGS: Mapping[str, FindingKind] = {
    kind.id: kind
    for kind in (
        *(
            FindingKind(rule.id, rule.severity, rule.title, type(rule).__module__.removeprefix("paddock.plan."))
            for rule in RULES.values()
        ),
        *(
            FindingKind(id_, severity, title, where)
            for where, kinds in _LISTED.items()
            for id_, severity, title in kinds
        ),
    )
}
"""Every finding by id."""
