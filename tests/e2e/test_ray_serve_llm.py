"""Ray Serve LLM's own builder with the arguments that a fleet writes; vLLM's modules are names from the dated list.

That vLLM takes the values and starts with them is not shown here: it runs on no machine of ours.
"""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

from infra.serving.ray_service import serve_config
from paddock.catalog.ml_images import engine_arguments
from tests.support.fleets import SERVING, fleet_data, stack

pytestmark = pytest.mark.e2e

MODELS = {
    "chat": {
        "model": "qwen3-0.6b", "checkpoint": "chat", "pools": ["t4"], "replicas": {"max": 3}, "quantization": "fp8",
        "engineArgs": {"enable_prefix_caching": True, "enable_auto_tool_choice": True, "tool_call_parser": "hermes"},
    },
    "large": {"model": "qwen3-8b", "checkpoint": "large", "pools": ["t4"], "tensorParallel": 4},
}  # fmt: skip


class _Vllm(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any module of vLLM: its classes of arguments have the fields of the list, every other name is an empty class."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "vllm" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = {"AsyncEngineArgs": "engine", "FrontendArgs": "server"}.get(name)
        if part is None:
            return type(name, (pydantic.BaseModel,), {"__module__": self.__name__})
        fields = [(row.name, object, None) for row in engine_arguments().values() if row.part == part]
        return dataclasses.make_dataclass(name, fields)


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the module `ray.serve.llm`."""
    for package in ("ray", "pyarrow", "httpx", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"Ray Serve LLM needs {package}")
    if importlib.util.find_spec("vllm") is None:
        monkeypatch.setattr(sys, "meta_path", [_Vllm(), *sys.meta_path])
    import ray
    import ray.serve.llm

    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(runtime_env={}))
    yield ray.serve.llm
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm" or name.startswith("ray.llm")]:
        del sys.modules[name]


def config() -> dict[str, Any]:
    pools = {"t4": {"instances": ["g4dn.12xlarge"], "nodes": {"max": 4}}}
    fleet = stack(fleet_data(pools=pools, runners={}, serving=deepcopy(SERVING) | {"models": MODELS})).fleet
    assert fleet.serving is not None
    return serve_config(fleet, fleet.serving)


def test_ray_serve_llm_builds_its_application_from_a_fleet(llm: Any) -> None:
    from ray.serve.schema import ServeDeploySchema

    written = config()
    assert [row.import_path for row in ServeDeploySchema.model_validate(written).applications] == [
        f"{llm.__name__}:build_openai_app"
    ]
    (arguments,) = [row["args"] for row in written["applications"]]
    ingress = llm.build_openai_app(arguments)._bound_deployment
    assert ingress.ray_actor_options["label_selector"] == {"paddock.agent": "head"}
    servers = ingress.init_kwargs["llm_deployments"]
    bundles = {
        name: server._bound_deployment._replica_config.placement_group_bundles for name, server in servers.items()
    }
    assert bundles["chat"] == [{"GPU": 1, "CPU": 1, "model-chat": 0.001}]
    assert [bundle["model-large"] for bundle in bundles["large"]] == [0.001] * 4


def test_ray_serve_llm_refuses_the_names_that_the_plan_does(llm: Any) -> None:
    ((model, *_),) = [row["args"]["llm_configs"] for row in config()["applications"]]
    model["engine_kwargs"] = {"enable_prefix_cachin": True}
    with pytest.raises(ValueError, match="Unknown engine argument"):
        llm.LLMConfig.model_validate(model).get_engine_config()
