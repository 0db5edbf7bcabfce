"""`inv init.github`: a form with the least that runners need, and keys that are looked at and never shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from paddock.console.output import PRINTED_JSON, BadFlag
from paddock.init.github_app import key
from paddock.init.github_app.command import GitHubAppParameters, github
from tests.support.performing import performed

Printed = pytest.CaptureFixture[str]


def run(root: Path, **flags: Any) -> None:
    assert performed(github, root, GitHubAppParameters(**flags)) == 0


def document(root: Path, capsys: Printed, **flags: Any) -> dict[str, object]:
    run(root, json=PRINTED_JSON, **flags)
    read: dict[str, object] = json.loads(capsys.readouterr().out)
    return read


@pytest.mark.parametrize(("url", "pages", "permissions"), [
    ("https://github.com/acme", ["https://github.com/organizations/acme/settings/apps/new"],
     {"organization_self_hosted_runners": "write", "metadata": "read"}),
    ("acme/project", ["https://github.com/organizations/acme/settings/apps/new",
     "https://github.com/settings/apps/new"], {"administration": "write", "metadata": "read"}),
    ("https://github.acme.com/tools", ["https://github.acme.com/organizations/tools/settings/apps/new"],
     {"organization_self_hosted_runners": "write", "metadata": "read"}),
])  # fmt: skip
def test_the_form_asks_for_what_runners_need_and_no_more(
    root: Path, capsys: Printed, url: str, pages: list[str], permissions: dict[str, str]
) -> None:
    printed = document(root, capsys, url=url)
    addresses = printed["register"]
    assert isinstance(addresses, dict)
    assert [address.partition("?")[0] for address in addresses.values()] == pages
    for address in addresses.values():
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query.pop("name") == printed["manifest"]["name"]  # type: ignore[index]  # of a JSON document
        assert query.pop("url") == printed["url"]
        assert query == {"public": "false", "webhook_active": "false", **permissions}
    assert printed["manifest"]["default_permissions"] == permissions  # type: ignore[index]  # of a JSON document


def test_the_form_asks_for_actions_only_on_request(root: Path, capsys: Printed) -> None:
    printed = document(root, capsys, url="https://github.com/acme", operate=True)
    assert printed["manifest"]["default_permissions"] == {  # type: ignore[index]  # of a JSON document
        "organization_self_hosted_runners": "write",
        "metadata": "read",
        "actions": "write",
    }


def test_the_form_asks_for_settings_only_on_request_and_to_read(root: Path, capsys: Printed) -> None:
    asked = document(root, capsys, url="acme", doctor=True)["manifest"]
    assert asked["default_permissions"] == {  # type: ignore[index]  # of a JSON document
        "organization_self_hosted_runners": "write",
        "metadata": "read",
        "organization_administration": "read",
        "administration": "read",
    }
    own = document(root, capsys, url="acme/project", doctor=True)["manifest"]
    assert own["default_permissions"]["administration"] == "write"  # type: ignore[index]  # of a JSON document


def test_the_name_of_an_app_is_not_too_long(root: Path, capsys: Printed) -> None:
    printed = document(root, capsys, url="a" * 39)
    assert len(printed["manifest"]["name"]) == 34  # type: ignore[index]  # of a JSON document


def test_the_steps_name_every_page_id_and_command(root: Path, capsys: Printed) -> None:
    run(root, stack="dev")
    text = capsys.readouterr().out
    for part in (
        "https://github.com/organizations/acme/settings/installations",
        "github.app.id",
        "github.app.installation",
        "pulumi config set --stack dev --secret paddock:githubAppKey < KEY.pem",
        "Self-hosted runners: read and write",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("acme", "install it in https://github.com/acme.\n"),
        ("acme/project", "install it in https://github.com/acme/project, and for no other repository.\n"),
    ],
)
def test_the_steps_install_it_where_the_runners_are(root: Path, capsys: Printed, url: str, where: str) -> None:
    run(root, url=url)
    assert where in capsys.readouterr().out


def test_a_key_kept_elsewhere_gets_no_pulumi_command(root: Path, tmp_path: Path, capsys: Printed) -> None:
    run(root, stack="prod", key=written(tmp_path / "app.pem"))
    text = capsys.readouterr().out
    printed = document(root, capsys, stack="prod")

    source = "arn:aws:secretsmanager:us-west-2:123456789012:secret:paddock/github-app-AbCdEf"
    assert "pulumi config set" not in text
    assert text.count(source) == 2  # among the steps, and after the key
    assert (printed["key_source"], printed["command"]) == (source, None)


def test_a_key_that_others_read_is_closed_by_a_quoted_command(root: Path, tmp_path: Path, capsys: Printed) -> None:
    path = written(tmp_path / "app key.pem", 0o644)
    run(root, key=path)
    text = capsys.readouterr().out
    assert f"chmod 600 '{path}'" in text
    assert f"paddock:githubAppKey < '{path}'" in text
    assert f"< '{path}'" in str(document(root, capsys, key=path)["command"])


def test_an_enterprise_of_a_stack_is_refused_by_the_stacks_flag(root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "Pulumi.yaml", tmp_path)
    (tmp_path / "Pulumi.big.yaml").write_text(
        "config:\n  aws:region: us-west-2\n  paddock:fleet:\n"
        "    github: {url: https://github.com/enterprises/acme, token: config}\n"
        "    pools: {t4: {instances: [g4dn.xlarge], nodes: {max: 5}}}\n"
        "    runners: {gpu: {pool: t4}}\n"
    )
    with pytest.raises(BadFlag, match=r"--stack big: https://github\.com/enterprises/acme: GitHub lets no App"):
        run(tmp_path, stack="big")


def test_the_manifest_is_written_as_a_file(root: Path, tmp_path: Path) -> None:
    run(root, url="acme", manifest=tmp_path / "app.json")
    assert json.loads((tmp_path / "app.json").read_text())["hook_attributes"]["active"] is False


@pytest.mark.parametrize(("flags", "message"), [
    ({}, "needs --url or --stack"),
    ({"url": "acme", "stack": "dev"}, "both say"),
    ({"url": "https://github.com/enterprises/acme"}, "of an enterprise"),
])  # fmt: skip
def test_a_contradictory_flag_is_refused(root: Path, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(BadFlag, match=message):
        run(root, **flags)


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def pem(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, form: PrivateFormat, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return private.private_bytes(Encoding.PEM, form, encryption)


def written(path: Path, mode: int = 0o600, form: PrivateFormat = PrivateFormat.PKCS8) -> Path:
    path.write_bytes(pem(RSA, form))
    path.chmod(mode)
    return path


@pytest.mark.parametrize("form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
def test_a_key_is_described_and_not_shown(form: PrivateFormat, tmp_path: Path, root: Path, capsys: Printed) -> None:
    path = written(tmp_path / "app.pem", form=form)
    run(root, key=path)
    text = capsys.readouterr().out
    assert "RSA, 2048 bits" in text
    assert "SHA256:" in text
    assert "chmod" not in text
    assert not any(line in text for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"# readme", "not a key in PEM form"),
        (RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "a public key"),
        (pem(RSA, PrivateFormat.PKCS8, b"secret"), "has a passphrase"),
        (pem(RSA, PrivateFormat.TraditionalOpenSSL)[:900], "damaged"),
        (pem(EC, PrivateFormat.PKCS8), "not an RSA key"),
        (None, "no such file"),
    ],
    ids=["empty", "text", "public", "encrypted", "cut", "elliptic", "absent"],  # keys differ from run to run
)
def test_a_file_that_is_no_such_key_is_refused_without_its_content(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "app.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(key.BadKey, match=message) as error:
        key.read(path)
    assert not any(line in str(error.value) for line in (content or b"").decode().splitlines() if len(line) > 40)
