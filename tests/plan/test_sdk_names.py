"""Names of Pulumi's SDK that are not its public interface, and that a plan rests on: an upgrade fails with the name."""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path

import pytest

from tests.conftest import ROOT

ENGINE = ROOT / "paddock" / "plan" / "engine"
NAMES = (
    "pulumi:Output._data",
    "pulumi:Output._track",
    "pulumi:ResourceOptions._copy",
    "pulumi:ResourceHookBinding._copy",
    "pulumi._types:_py_name_for",
    "pulumi._types:input_type_py_to_pulumi_names",
    "pulumi._types:input_type_types",
    "pulumi._types:reduce_discriminated_union",
    "pulumi._types:resource_pulumi_to_py_names",
    "pulumi._types:resource_types",
    "pulumi._types:unwrap_type",
    "pulumi.output:_OutputData",
    "pulumi.output:_is_prompt",
    "pulumi.output:contains_unknowns",
    "pulumi.resource:register_resource_outputs",
    "pulumi.runtime._depends_on:_resolve_depends_on_urns",
    "pulumi.runtime.resource:_create_provider_ref",
    "pulumi.runtime.resource:_get_stack_trace",
    "pulumi.runtime.resource:_prepare_resource_hooks",
    "pulumi.runtime.resource:_resolve_depends_on_urns",
    "pulumi.runtime.resource:create_urn",
    "pulumi.runtime.resource:register_resource_outputs",
    "pulumi.runtime.resource:resource_pb2",
    "pulumi.runtime.resource:serialize_property",
    "pulumi.runtime.resource_cycle_breaker:_DEPENDENCIES_PROPERTY",
    "pulumi.runtime.rpc:_get_list_element_type",
    "pulumi.runtime.rpc:_special_resource_sig",
    "pulumi.runtime.rpc:_special_secret_sig",
    "pulumi.runtime.rpc:_special_sig_key",
    "pulumi.runtime.rpc:contains_unknowns",
    "pulumi.runtime.rpc:declare_dependency",
    "pulumi.runtime.rpc:deserialize_property",
    "pulumi.runtime.rpc:resolve_outputs",
    "pulumi.runtime.rpc:serialize_properties",
    "pulumi.runtime.rpc:transfer_properties",
    "pulumi.runtime.rpc:translate_output_properties",
    "pulumi.runtime.settings:ROOT",
    "pulumi.runtime.settings:SETTINGS",
    "pulumi.runtime.stack:run_pulumi_func",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_sdk_has_each_private_name(name: str) -> None:
    module, _, path = name.partition(":")
    owner = importlib.import_module(module)
    if path == "Output._data":  # made by the constructor
        assert "_data" in owner.Output.__init__.__code__.co_names, name
        return
    assert functools.reduce(getattr, path.split("."), owner), name


def test_every_private_name_in_use_is_listed() -> None:
    listed = {name.rpartition(":")[2].rpartition(".")[2] for name in NAMES}
    modules = {part for name in NAMES for part in name.partition(":")[0].split(".")}
    assert set().union(*map(_private, sorted(ENGINE.rglob("*.py")))) - listed - modules == set()


def _private(path: Path) -> set[str]:
    """Return the private names that a module imports from the SDK, reads of it or replaces in it."""
    names: set[str] = set()
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=aliases):
                imported |= {alias.asname or alias.name for alias in aliases if alias.name.startswith("pulumi")}
            case ast.ImportFrom(module=str(module), names=aliases) if module.split(".")[0] == "pulumi":
                imported |= {alias.asname or alias.name for alias in aliases}
                names |= {alias.name for alias in aliases}
            case ast.Attribute(value=value, attr=attr) if ast.unparse(value).split(".")[0] in imported:
                names.add(attr)
            case ast.Tuple(elts=[owner, ast.Constant(value=str(name)), _]) if (
                ast.unparse(owner).split(".")[0] in imported
            ):
                names.add(name)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}
