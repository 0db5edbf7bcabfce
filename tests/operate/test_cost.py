"""Cost of a period, on a stand-in for Cost Explorer whose calls botocore's models check, and one for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import NoCredentialsError

from paddock.console.output import BadFlag
from paddock.operate.cost.command import ShowCost, cost
from paddock.operate.cost.report import Cost
from paddock.operate.cost.usage import QUERIES
from paddock.operate.sources import interruptions
from paddock.operate.sources.interruptions import Interruption
from tests.operate.conftest import planned_once
from tests.support.aws_account import DENIED, Account, Answer, Refusal, answering
from tests.support.exported_metrics import exported
from tests.support.http_server import Handler, serving

Reported = Callable[..., Cost]
OPERATION = "ce.GetCostAndUsage"
POOL = "paddock-dev-t4"
SPOT, ON_DEMAND = "USW2-SpotUsage:g4dn.xlarge", "USW2-BoxUsage:g4dn.xlarge"


def group(name: str, type_: str, usd: float, quantity: float, unblended: float | None = None) -> dict[str, Any]:
    """Return a sum as Cost Explorer has it: amortised, and unblended where that is another."""
    unblended = usd if unblended is None else unblended
    dollars = {"AmortizedCost": usd, "NetAmortizedCost": usd, "UnblendedCost": unblended}
    metrics = {key: {"Amount": str(amount), "Unit": "USD"} for key, amount in dollars.items()}
    metrics["UsageQuantity"] = {"Amount": str(quantity), "Unit": "N/A"}
    return {"Keys": [f"Tag${name}", type_], "Metrics": metrics}


def day(*groups: dict[str, Any], token: str = "", estimated: bool = False) -> dict[str, Any]:
    period = {"Start": "2026-11-17", "End": "2026-11-18"}
    answer = {"ResultsByTime": [{"TimePeriod": period, "Groups": list(groups), "Estimated": estimated}]}
    return {**answer, **({"NextPageToken": token} if token else {})}


BILL = day(
    group(POOL, SPOT, 8.0, 40.0),
    group(POOL, ON_DEMAND, 5.26, 10.0),
    group(POOL, "USW2-EBS:VolumeUsage.gp3", 0.5, 6.0),
    group("paddock-dev-system", "USW2-BoxUsage:m7i.large", 20.0, 200.0),
    group("", "USW2-AmazonEKS-Hours:perCluster", 16.8, 168.0),
)


RECORDS = day(
    group("paddock-dev", "Usage", 50.56, 424.0), group("", "Usage", 900.0, 9000.0), group("", "Tax", 88.0, 0.0)
)


def explorer(
    bill: dict[str, Any], records: dict[str, Any] | Exception = RECORDS, covered: dict[str, Any] | None = None
) -> Callable[[dict[str, Any]], Any]:
    """Return what answers as Cost Explorer does: by name and usage type, by fleet and record type, by name and it."""

    def answer(parameters: dict[str, Any]) -> Any:
        tag, dimension = (group["Key"] for group in parameters["GroupBy"])
        if dimension == "USAGE_TYPE":
            return bill
        if tag == "Name":
            return covered or day()
        assert "Filter" not in parameters
        return records

    return answer


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr("paddock.plan.engine.program.plan_graph", planned_once)
    monkeypatch.setenv("PADDOCK_TODAY", "2026-11-24")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def report(of_project: Path, monkeypatch: pytest.MonkeyPatch) -> Reported:
    """Return what reads the report of an account, or of one whose Cost Explorer gives an answer."""

    def run(answer: Answer | Account, code: int = 0, **flags: Any) -> Cost:
        if isinstance(answer, dict):
            answer = explorer(answer)
        answering(monkeypatch, answer if isinstance(answer, Account) else Account({OPERATION: answer}))
        result = cost(ShowCost(**flags))
        assert result.exit_code == code
        return result

    return run


def test_pool_has_its_actual_beside_the_estimate(report: Reported) -> None:
    result = report(BILL)
    (pool,) = result.pools
    assert (pool.actual_usd, pool.node_hours, pool.actual_node_hour) == (13.76, 50.0, 0.2652)
    assert pool.estimate_usd
    assert pool.ratio == pytest.approx(13.76 / pool.estimate_usd, abs=0.001)
    assert (result.rest.actual_usd, result.total.actual_usd, result.bill.usd) == (36.8, 50.56, 50.56)


def test_request_is_of_whole_days_and_the_fleet_tag(report: Reported) -> None:
    account = Account({OPERATION: explorer(BILL)})
    document = report(account, days=3).document()
    asked, every = account.called(OPERATION)
    assert asked["TimePeriod"] == every["TimePeriod"] == {"Start": "2026-11-21", "End": "2026-11-24"}
    assert asked["Metrics"] == ["AmortizedCost", "NetAmortizedCost", "UnblendedCost", "UsageQuantity"]
    assert asked["Filter"]["Tags"]["Key"] == "paddock:fleet"
    assert (document["schema"], document["bill"]["requests_usd"]) == ("paddock.cost/1", 0.02)
    assert list(document)[-2:] == ["metrics", "notes"]


def test_price_that_is_missing_is_named(report: Reported, project: Path, root: Path) -> None:
    (project / "Pulumi.prod.yaml").write_text((root / "Pulumi.prod.yaml").read_text())
    result = report(BILL, stack="prod")
    assert any(pool.estimate_usd is None for pool in result.pools)
    assert any(note.startswith("estimates leave out ") for note in result.remarks)


def test_pages_are_added_up_and_their_price_said(report: Reported) -> None:
    def pages(parameters: dict[str, Any]) -> Any:
        if parameters["GroupBy"][1]["Key"] == "RECORD_TYPE":
            return RECORDS
        if "NextPageToken" in parameters:
            return day(group(POOL, SPOT, 1.0, 5.0), estimated=True)
        return day(group(POOL, SPOT, 2.0, 10.0), token="more")

    bill = report(pages).bill
    assert (bill.usd, bill.requests, bill.requests_usd, bill.estimated) == (3.0, 3, 0.03, True)


def test_untagged_is_unknown_and_never_zero(report: Reported) -> None:
    nothing = report(day())
    assert nothing.bill.usd is None
    assert nothing.bill.fix.startswith("aws ce update-cost-allocation-tags-status ")
    assert nothing.pools[0].actual_usd is None
    nameless = report(day(group("", SPOT, 4.0, 20.0)))
    assert (nameless.bill.usd, nameless.pools[0].actual_usd, nameless.rest.actual_usd) == (4.0, None, None)
    assert "has Name" in nameless.pools[0].unknown


def test_pool_that_did_not_run_cost_nothing(report: Reported) -> None:
    result = report(day(group("paddock-dev-system", "USW2-BoxUsage:m7i.large", 2.0, 20.0)))
    assert result.pools[0].actual_usd == 0.0


@pytest.mark.parametrize(
    ("refusal", "message", "fix"),
    [
        (DENIED, "denies ce:GetCostAndUsage", "allow ce:GetCostAndUsage"),
        (Refusal("DataUnavailableException"), "no data for these days", "enable Cost Explorer"),
        (Refusal("LimitExceededException"), "throttles", "in a minute"),
        (Refusal("ThrottlingException"), "throttles", "in a minute"),
        (NoCredentialsError(), "no credentials", "aws sso login"),
    ],
)
def test_unreadable_bill_is_said_and_exits_one(report: Reported, refusal: Exception, message: str, fix: str) -> None:
    bill = report(refusal, code=1).bill
    assert message in bill.unknown
    assert fix in bill.fix
    assert bill.permission == ("ce:GetCostAndUsage" if refusal is DENIED else "")


COVERED = day(
    group(POOL, ON_DEMAND, 31.6 + 5.26, 110.0, unblended=52.6 + 5.26),
    group(POOL, "USW2-EBS:VolumeUsage.gp3", 0.5, 6.0),
    group("paddock-dev-system", "USW2-BoxUsage:m7i.large", 12.0, 200.0, unblended=0.0),
    group("", "USW2-AmazonEKS-Hours:extendedSupport", 84.0, 168.0),
)
RECORDED = day(
    group("paddock-dev", "SavingsPlanCoveredUsage", 31.6, 100.0, unblended=52.6),
    group("paddock-dev", "DiscountedUsage", 12.0, 200.0, unblended=0.0),
    group("paddock-dev", "Usage", 5.76, 16.0),
    group("", "Savings Plan Negation", 0.0, 100.0, unblended=-52.6),
    group("", "SavingsPlanRecurringFee", 3.0, 168.0, unblended=34.6),
    group("", "Lunar fee", 7.0, 1.0),
    group("another-fleet", "SavingsPlanCoveredUsage", 1.0, 1.0, unblended=2.0),
)
BY_NAME = day(
    group(POOL, "SavingsPlanCoveredUsage", 31.6, 100.0, unblended=52.6),
    group(POOL, "Usage", 5.76, 16.0),
    group("paddock-dev-system", "Discounted Usage", 12.0, 200.0, unblended=0.0),
)


def test_covered_use_is_at_the_price_of_its_savings_plan(report: Reported) -> None:
    result = report(explorer(COVERED, RECORDED, BY_NAME))
    (pool,) = result.pools
    assert (pool.actual_usd, pool.actual_node_hour) == (37.36, 0.3351)
    assert (result.bill.usd, result.bill.unblended_usd, result.bill.requests) == (133.36, 142.36, 3)
    found = {(part.of, part.kind): (part.usd, part.unblended_usd, part.usd_an_hour) for part in result.parts}
    assert found == {
        ("t4", "on demand"): (5.26, 5.26, 0.526),
        ("t4", "Savings Plan"): (31.6, 52.6, 0.316),
        ("t4", "other"): (0.5, 0.5, None),
        ("all else", "reservation"): (12.0, 0.0, 0.06),
        ("all else", "extended support"): (84.0, 84.0, 0.5),
    }
    assert sum(part.usd for part in result.parts) == pytest.approx(result.bill.usd)
    printed = "\n".join(result.text())
    assert "UnblendedCost: 142.36 USD, before Savings Plans and reservations" in printed


def test_what_carries_no_tag_of_the_fleet_is_named(report: Reported) -> None:
    result = report(explorer(COVERED, RECORDED, BY_NAME))
    left = {one.record_type: (one.usd, one.meaning) for one in result.left_out}
    assert {type_: usd for type_, (usd, _) in left.items()} == {
        "Savings Plan Negation": -52.6, "SavingsPlanRecurringFee": 34.6, "Lunar fee": 7.0, "Usage": 2.0,
    }  # fmt: skip
    assert left["Lunar fee"][1] == "a record type that is not known here"
    assert left["Savings Plan Negation"][1].startswith("takes back the price on demand")


@pytest.mark.parametrize("refusal", [DENIED, Refusal("LimitExceededException")])
def test_bill_stays_where_record_types_are_refused(report: Reported, refusal: Exception) -> None:
    result = report(explorer(COVERED, refusal))
    assert (result.bill.usd, result.left_out, result.bill.failed) == (133.36, (), False)
    assert "ce:GetCostAndUsage" in result.left_out_unknown
    assert {part.kind for part in result.parts} == {"on demand or covered", "other", "extended support"}


def test_cluster_of_others_has_no_bill_here(report: Reported, project: Path) -> None:
    file = project / "Pulumi.dev.yaml"
    others = '    cluster: {kubeconfig: ~/.kube/config, version: "1.36"}\n    pools:\n'
    file.write_text(re.sub(r"    cluster:\n.*?    pools:\n", others, file.read_text(), flags=re.DOTALL))
    account = Account({})
    result = report(account)
    assert "buys no nodes" in result.bill.unknown
    assert (result.bill.usd, result.pools[0].actual_usd, account.calls) == (None, None, [])


def test_on_demand_hours_of_a_spot_pool_are_a_change(report: Reported) -> None:
    changes = report(BILL).changes
    assert len(changes) <= 3
    assert [change.usd for change in changes] == sorted((change.usd for change in changes), reverse=True)
    (fallback,) = (change for change in changes if "on demand" in change.message)
    assert fallback.message.startswith("10.0 node-hours")
    assert 0 < fallback.usd < 5.26


def test_queries_read_only_exported_metrics() -> None:
    names = {
        name
        for query in QUERIES
        for name in re.findall(r"\b(?:kube|gha|DCGM|paddock)_\w+", f"{query.expression} {query.present}")
    }
    assert len(names) >= 6
    assert names <= set(exported())


class Answers(Handler):
    """A stand-in for Prometheus' API: answers by a piece of the query."""

    url = ""
    by_piece: ClassVar[dict[str, list[tuple[dict[str, str], float]]]] = {}
    text: bytes | None = None

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        rows = next((rows for piece, rows in self.by_piece.items() if piece in query), [])
        result = [{"metric": labels, "value": [0, str(value)]} for labels, value in rows]
        document = {"status": "success", "data": {"resultType": "vector", "result": result}}
        self.send(200, document if self.text is None else self.text)


@pytest.fixture
def server() -> Iterator[type[Answers]]:
    class Own(Answers):
        pass

    with serving(Own) as Own.url:
        yield Own


def test_waste_and_workflows_from_stand_in_of_prometheus(report: Reported, server: type[Answers]) -> None:
    server.by_piece = {
        "> bool 0": [({}, 168.0)],
        "unless on(node)": [({}, 10.0)],
        "clamp_min": [({}, 2.0)],
        '"Pending"': [],
        '"Running"': [({}, 30.0)],
        "kube_node_status_allocatable": [({}, 50.0)],
        "gha_idle_runners": [({"name": "gpu"}, 5.0), ({"name": "of-another-fleet"}, 90.0)],
        "DCGM_FI_DEV_GPU_UTIL": [({"modelName": "Tesla T4"}, 41.25)],
        "_seconds_sum": [
            ({"organization": "acme", "repository": "a", "job_workflow_name": "ci"}, 3.0),
            ({"organization": "acme", "repository": "b", "job_workflow_name": "ci"}, 9.0),
        ],
    }
    result = report(BILL, prometheus=server.url)
    waste = {one.kind: one for one in result.waste}
    assert {kind: one.gpu_hours for kind, one in waste.items()} == {
        "idle runners": 5.0, "empty nodes": 10.0, "stranded": 2.0, "image pull": 0.0, "idle in jobs": None,
        "boot": None, "interrupted": None,
    }  # fmt: skip
    assert waste["empty nodes"].usd == pytest.approx(13.76 / 5, abs=0.01)
    assert [(row.repository, row.share) for row in result.workflows] == [("acme/b", 0.75), ("acme/a", 0.25)]
    assert (result.utilisation[0].percent, result.workflows[0].gpu_percent) == (41.2, None)
    assert (result.jobs, "no metric that joins a job with its GPU" in result.jobs_unknown) == ((), True)


def job_labels(repository: str, workflow: str, scale_set: str = "gpu") -> dict[str, str]:
    ref = f"{repository}/.github/workflows/{workflow}.yml@refs/heads/main"
    return {"repository": repository, "job_workflow_ref": ref, "scale_set": scale_set}


TRAIN, CI, WEB = job_labels("acme/app", "train"), job_labels("acme/app", "ci"), job_labels("acme/web", "ci")
JOBS = {
    # The most special piece of a query first.
    "== 0": [(WEB, 5.92)],
    "/ 100": [(TRAIN, 5.5), (CI, 4.8), (WEB, 0.0)],
    "count by (namespace, pod) (DCGM": [(TRAIN, 11.0), (CI, 6.0), (WEB, 6.0)],
    "paddock_runner_job_info": [
        (TRAIN, 12.0),
        (CI, 6.0),
        (WEB, 6.0),
        (job_labels("acme/web", "mig"), 1.0),
        (job_labels("other/x", "ci", "of-another-fleet"), 99.0),
    ],
    "> bool 0": [({}, 168.0)],
    "_seconds_sum": [({"organization": "acme", "repository": "app", "job_workflow_name": "train"}, 3.0)],
}
PRICE = 13.76 / 50
"""Of a GPU-hour: the pool's bill over 50 hours of instances with one GPU each."""


def test_gpus_by_repository_have_hours_use_and_cost(report: Reported, server: type[Answers]) -> None:
    server.by_piece = JOBS
    result = report(BILL, prometheus=server.url)
    rows = {(row.repository, row.workflow): row for row in result.jobs}
    expected = [("acme/app", "train"), ("acme/app", "ci"), ("acme/web", "ci"), ("acme/web", "mig")]
    assert list(rows) == expected, "jobs of another fleet's runners are not ours"
    train, ci, web, mig = rows.values()
    assert (train.gpu_hours, train.gpu_percent, train.idle_gpu_hours) == (12.0, 50.0, 0.0)
    assert (ci.gpu_percent, web.gpu_percent, web.idle_gpu_hours) == (80.0, 0.0, 5.92)
    assert (mig.gpu_hours, mig.gpu_percent, mig.idle_gpu_hours) == (1.0, None, None), "DCGM says nothing of MIG"
    assert [row.usd for row in result.jobs] == [round(hours * PRICE, 2) for hours in (12, 6, 6, 1)]
    assert {one.kind: one.gpu_hours for one in result.waste}["idle in jobs"] == 5.92
    assert result.workflows[0].gpu_percent == 50.0
    assert result.jobs_unknown == ""


def test_cost_of_a_repository_needs_samples_of_all_days(report: Reported, server: type[Answers]) -> None:
    server.by_piece = {**JOBS, "> bool 0": [({}, 24.0)]}
    result = report(BILL, prometheus=server.url)
    assert [(row.gpu_hours, row.usd) for row in result.jobs[:2]] == [(12.0, None), (6.0, None)]


def test_cost_by_repository_counts_the_gpus_of_each_instance(report: Reported, server: type[Answers]) -> None:
    server.by_piece = JOBS
    four = day(group(POOL, "USW2-SpotUsage:g4dn.12xlarge", 40.0, 10.0))
    assert report(four, prometheus=server.url).jobs[0].usd == 12.0
    strange = day(group(POOL, "USW2-SpotUsage:g99.huge", 40.0, 10.0))
    assert report(strange, prometheus=server.url).jobs[0].usd is None


def test_page_shows_the_table_of_repositories(report: Reported, server: type[Answers], root: Path) -> None:
    server.by_piece = JOBS
    printed = "".join(f"{line}\n" for line in report(BILL, prometheus=server.url).text())
    page = (root / "docs/cost.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(repository .*?)```", page, re.DOTALL)
    assert shown in printed
    assert "no metric that joins" not in printed


def test_interrupted_jobs_of_the_record_are_at_least_so_many(
    report: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    spans = [
        ("2026-11-20T10:00:00+00:00", "2026-11-20T13:00:00+00:00"),
        # Half of it lies before the period.
        ("2026-11-16T23:00:00+00:00", "2026-11-17T01:00:00+00:00"),
        ("2026-11-24T03:00:00+00:00", "2026-11-24T04:00:00+00:00"),
    ]
    jobs = [Interruption(number, "acme/a", "ci", "gpu", 2, *span) for number, span in enumerate(spans)]
    interruptions.keep("dev", jobs)
    lost = report(BILL).waste[-1]
    assert (lost.kind, lost.gpu_hours, lost.at_least, lost.usd) == ("interrupted", 8.0, True, None)
    interruptions.path("dev").write_text("damaged")
    lost = report(BILL).waste[-1]
    assert (lost.gpu_hours, lost.at_least, "not a record of interruptions" in lost.unknown) == (None, False, True)


def test_share_of_the_bill_needs_samples_of_all_days(report: Reported, server: type[Answers]) -> None:
    server.by_piece = {
        "> bool 0": [({}, 24.0)],
        "unless on(node)": [({}, 10.0)],
        "sum by (node) (kube_node_status": [({}, 50.0)],
    }
    result = report(BILL, prometheus=server.url)
    empty = next(one for one in result.waste if one.kind == "empty nodes")
    assert (empty.gpu_hours, empty.usd) == (10.0, None)


@pytest.mark.parametrize("body", [b"<html>", b'{"status": "success"}', b"[]"])
def test_answer_of_another_server_leaves_the_bill(report: Reported, server: type[Answers], body: bytes) -> None:
    server.text = body
    result = report(BILL, prometheus=server.url)
    assert result.bill.usd == 50.56
    assert result.metrics is not None
    assert "not one of Prometheus' API" in result.metrics.unknown
    assert all(one.gpu_hours is None and one.unknown for one in result.waste)


@pytest.mark.parametrize(
    "flags",
    [{"days": 400}, {"prometheus": "file:///etc/passwd"}, {"prometheus": "http://me:secret@host"}],
)
def test_bad_flags_say_what_was_expected(of_project: Path, flags: dict[str, Any]) -> None:
    with pytest.raises(BadFlag, match=r"(?s)expected: .*\n    fix: ") as caught:
        cost(ShowCost(**flags))
    assert "secret" not in str(caught.value)


def test_page_shows_what_the_command_prints(report: Reported, root: Path) -> None:
    printed = "".join(f"{line}\n" for line in report(BILL).text())
    page = (root / "docs/cost.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"\$ \./inv cost --stack dev\n(.*?)```", page, re.DOTALL)
    assert shown == printed
