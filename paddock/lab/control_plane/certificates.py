"""Creation of the lab's identities: a certificate authority, a server certificate, a signing key, a token per client.

The private keys of the server and of service accounts never leave the state folder; the authority's is not kept.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from paddock.lab.control_plane.identity import Identity
from paddock.lab.control_plane.state import write_private

USERS: Mapping[str, tuple[str, ...]] = {
    "admin": ("system:masters",),
    "kwok": ("system:masters",),
    "system:kube-controller-manager": (),
    "system:kube-scheduler": (),
}
"""Clients of the API server and their groups; the built-in roles of Kubernetes cover the two without a group."""

_VALIDITY = datetime.timedelta(days=3650)
_ADDRESSES = ("127.0.0.1", "10.0.0.1")
_HOST_NAMES = (
    *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    "kubernetes.default.svc.cluster.local",
)


def create(folder: Path) -> Identity:
    """Create the files where an earlier call has not finished. Raises LabError."""
    identity = Identity(folder)
    complete = folder / "complete"
    if complete.exists():
        return identity
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_key, server_key, accounts_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    write_private(identity.authority, _pem(_authority(authority_key)))
    write_private(identity.certificate, _pem(_server_certificate(server_key, authority_key)))
    write_private(identity.key, _private_pem(server_key))
    write_private(identity.accounts_key, _private_pem(accounts_key))
    rows = ((secrets.token_urlsafe(32), user, user, *groups) for user, groups in USERS.items())
    write_private(identity.tokens, "".join(f"{','.join(row)}\n" for row in rows))
    complete.touch()
    return identity


def rsa_key() -> str:
    """Return a new private key of the kind that GitHub gives to an App, in PEM form."""
    return _private_pem(rsa.generate_private_key(65537, 2048))


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return _signed("paddock-lab", key, key, [(x509.BasicConstraints(ca=True, path_length=None), True)])


def _server_certificate(key: ec.EllipticCurvePrivateKey, authority_key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Return the certificate of every server, which the API server also presents to etcd as a client."""
    addresses = (x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES)
    purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    extensions = [
        (x509.BasicConstraints(ca=False, path_length=None), False),
        (purposes, False),
        (x509.SubjectAlternativeName([*addresses, *map(x509.DNSName, _HOST_NAMES)]), False),
    ]
    return _signed("kube-apiserver", key, authority_key, extensions)


def _signed(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    """Return a certificate for `key`. Of each extension: whether it is critical."""
    now, authority = datetime.datetime.now(datetime.UTC), key is issuer_key
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    off = dict.fromkeys((*others, "decipher_only"), False)
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=authority, crl_sign=authority, **off)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name("paddock-lab"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _VALIDITY)
    )
    for extension, critical in [
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        # Python 3.13 refuses a certificate that does not name its issuer's key.
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), False),
        (usage, True),
        *extensions,
    ]:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    # kube-apiserver reads no key of service accounts in PKCS #8; GitHub gives an App its key in this form too.
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()
