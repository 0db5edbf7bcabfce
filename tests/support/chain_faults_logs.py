"""Faults that only a log names: what ARC's listener says before it ends, and its controller of a scale set."""

from __future__ import annotations

import json
from collections.abc import Mapping

from paddock.operate.snapshot.logs import Target, document
from tests.support.chain_fault import fault
from tests.support.chain_faults_arc import ends_again_and_again, unregistered
from tests.support.chain_objects import LISTENER, RUNNERS, SYSTEM, container, pod_on
from tests.support.chain_world import World

CONTROLLER = "arc-gha-rs-controller-5d9"


def log(world: World, pod: str, text: str, *, previous: bool = False) -> None:
    """Add the end of a container's log, as a snapshot has it."""
    item = world.get("Pod", pod)
    target = Target(str(item["metadata"]["namespace"]), pod, item["spec"]["containers"][0]["name"], previous)
    world.logs.append(document(target, text))


def listener_ends(world: World, words: str = "") -> None:
    """Let ARC make the listener again and again; the last one has just ended with these words."""
    world.no_runner()
    ends_again_and_again(world)
    end = {"exitCode": 1, "reason": "Error", "finishedAt": world.ago(0.02)}
    world.listener_pod()["status"] = {
        "phase": "Failed",
        "containerStatuses": [container("listener", terminated=end)],
    }
    if words:
        first = 'time=2026-11-24T11:58:00.000Z level=INFO msg="refreshing token"'
        log(world, LISTENER, f"{first}\n2026/11/24 11:58:01 {words}\n")


def controller_says(world: World, error: str, runner_set: str = "gpu", namespace: str = RUNNERS) -> None:
    """Leave the scale set without registration, with an error in the controller's log, as zap writes it."""
    unregistered(world)
    controller_pod(world)
    about = json.dumps({"name": runner_set, "namespace": namespace}, separators=(",", ":"))
    fields = f'{{"version": "0.14.2", "autoscalingrunnerset": {about}, "error": {json.dumps(error)}}}'
    message = "Failed to initialize Actions service client for creating a new runner scale set"
    line = f"2026-11-24T11:58:01Z\tERROR\tAutoscalingRunnerSet\t{message}\t{fields}"
    trace = "github.com/actions/actions-runner-controller/controllers/actions%2egithub%2ecom.(*Reconciler)"
    log(world, CONTROLLER, f"{line}\n{trace}\n\t/build/controller.go:1\n")


def controller_pod(world: World) -> None:
    """Add the pod of the controller."""
    pod = pod_on(CONTROLLER, SYSTEM, "system-0", "manager")
    pod["metadata"]["labels"] = {
        "app.kubernetes.io/part-of": "gha-rs-controller",
        "app.kubernetes.io/component": "controller-manager",
    }
    world.objects.append(pod)


# What a listener says before it ends: ARC 4285, 3209, 3942; 4489; the guide's "GitHub refuses the App".
SESSION = "failed to create actions message session client: failed to create message session: "
REFRESH = (
    f"{SESSION}failed to do the session request: failed to create new actions service request: failed to issue update "
    "token if needed: failed to get runner registration token on refresh: "
)
APP = "request POST https://api.github.com/app/installations/678/access_tokens failed"
REGISTER = "request POST https://api.github.com/orgs/acme/actions/runners/registration-token failed"
BROKER = (
    "request POST https://broker.actions.githubusercontent.com/rest/_apis/runtime/runnerscalesets/7/sessions"
    "?api-version=6.0-preview failed"
)
ENDS = "Application returned an error: "
CONFLICT = (
    f'{ENDS}{SESSION}failed to do the session request: {BROKER}(status="409 Conflict", activity_id="a-1"): unexpected'
    " status code 409 Conflict: GitHub.Actions.Runtime.WebApi.RunnerScaleSetSessionConflictException,"
    " GitHub.Actions.Runtime.WebApi: The actions runner scaleset gpu already has an active session."
)


_TOKEN = f"failed to fetch access token: {APP}"
_UNSENT = f'failed to issue the request: {REGISTER}: failed to send request: Post "https://api.github.com/orgs/acme": '
_NO_RIGHT = f'{REGISTER}(status="403 Forbidden"): failed to get runner registration token (403 Forbidden): : '
ERRORS: Mapping[str, str] = {
    "key-broken": "failed to fetch access token: failed to create JWT for GitHub app: failed to parse RSA private key"
    " from PEM: invalid key",
    "app-refused": f'{_TOKEN}(status="401 Unauthorized", github_request_id="C0DE:1"): failed to get access token for'
    " GitHub App auth (401 Unauthorized): : A JSON web token could not be decoded",
    "app-elsewhere": f'{_TOKEN}(status="404 Not Found"): failed to get access token for GitHub App auth'
    " (404 Not Found): : Not Found",
    "app-rights": f"{_NO_RIGHT}Resource not accessible by integration",
    "rate-limited": f"{_NO_RIGHT}API rate limit exceeded for installation ID 678.",
    "address-not-allowed": f"{_NO_RIGHT}Although you appear to have the correct authorization credentials, the `acme`"
    " organization has an IP allow list enabled, and your IP address is not permitted to access this resource.",
    "certificate": f"{_UNSENT}tls: failed to verify certificate: x509: certificate signed by unknown authority",
    "proxy": f"{_UNSENT}proxyconnect tcp: dial tcp: lookup proxy.acme.internal: no such host",
    "no-network": f"{_UNSENT}POST https://api.github.com/orgs/acme giving up after 5 attempt(s): dial tcp: lookup"
    " api.github.com: no such host",
    "github-fails": f'{BROKER}(status="503 Service Unavailable"): unexpected status code 503 Service Unavailable',
}
"""Errors of ARC's client of GitHub, which listener and controller share, by the end of their runbooks' names."""


def _add(reason: str, error: str) -> None:
    def of_listener(world: World) -> None:
        listener_ends(world, f"{ENDS}{REFRESH}{error}")

    def of_scale_set(world: World) -> None:
        controller_says(world, error)

    for link, change in (("listener", of_listener), ("scale-set", of_scale_set)):
        change.__name__ = f"log_of_{change.__name__}_says_{reason}".replace("-", "_")
        fault(link, f"{link}-{reason}")(change)


for _reason, _error in ERRORS.items():
    _add(_reason, _error)


@fault("listener", "listener-session-conflict")
def another_listener_has_the_session(world: World) -> None:
    listener_ends(world, CONFLICT)


@fault("listener", "listener-set-unknown")
def scale_set_was_deleted_at_github(world: World) -> None:
    kind = "GitHub.Actions.Runtime.WebApi.RunnerScaleSetNotFoundException, GitHub.Actions.Runtime.WebApi"
    answer = f'{BROKER}(status="404 Not Found", activity_id="a-1"): unexpected status code 404 Not Found: {kind}'
    end = "No runner scale set found with identifier 7."
    listener_ends(world, f"{ENDS}{SESSION}failed to do the session request: {answer}: {end}")


@fault("listener", "listener-github-fails")
def session_has_no_address_of_its_queue(world: World) -> None:
    listener_ends(world, f'{ENDS}failed to get message: request GET  failed: Get "": unsupported protocol scheme ""')


@fault("listener", "listener-stale")
def listener_cannot_patch_a_deleted_runner_set(world: World) -> None:
    error = 'ephemeralrunnersets.actions.github.com "gpu-zz999" not found'
    patch = '{"spec":{"patchID":3,"replicas":1}}'
    message = f"could not patch ephemeral runner set , patch JSON: {patch}, error: {error}"
    listener_ends(world, f"{ENDS}failed to handle message: handling initial message failed: {message}")


@fault("scale-set", "scale-set-group-missing")
def runner_group_does_not_exist(world: World) -> None:
    place = "https://broker.actions.githubusercontent.com/rest/_apis/runtime/runnergroups/?groupName=gpus"
    answer = f'request GET {place} failed(status="200 OK")'
    controller_says(world, f'{answer}: no runner group found with name "gpus": unknown error')


@fault("scale-set", "controller-without-crds")
def controller_misses_a_crd(world: World) -> None:
    world.no_runner()
    world.get("Deployment", "arc-gha-rs-controller")["status"] = {}
    controller_pod(world)
    fields = '{"kind": "EphemeralRunner.actions.github.com", "error": "no matches for kind \\"EphemeralRunner\\""}'
    message = "if kind is a CRD, it should be installed before calling Start"
    log(world, CONTROLLER, f"2026-11-24T11:58:01Z\tERROR\tcontroller-runtime.source\t{message}\t{fields}")
