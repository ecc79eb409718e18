"""Signed statements: an envelope of DSSE with Ed25519, and the keys in their files.

DSSE is the Dead Simple Signing Envelope of in-toto and sigstore, protocol 1.0.2; Ed25519 (RFC 8032)
is that of the package `cryptography`. What is signed are the very bytes of the payload as they lie
in the envelope, never a text that is made from them again.
"""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.digest import sha256_bytes
from artifacts.errors import InputError, MissingExtraError, UnsafeFileError
from artifacts.file_kind import printable, require_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_MAX_BYTES = 1 << 20
_EXPECTED = "a signature that framefit sign wrote"


def sign_payload(payload: bytes, kind: str, key: "Ed25519PrivateKey") -> str:
    """Returns the text of an envelope.

    Args:
        payload: what is stated.
        kind: the payload's media type; it is signed too.
        key: who states it.
    """
    signature = key.sign(_encode(kind, payload))
    envelope = {
        "payloadType": kind,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [
            {"keyid": key_id(key.public_key()), "sig": base64.b64encode(signature).decode()}
        ],
    }
    return json.dumps(envelope, indent=1) + "\n"


def open_envelope(
    path: Path, kind: str, keys: Sequence["Ed25519PublicKey"]
) -> tuple[bytes, list[str]]:
    """Reads an envelope.

    Args:
        path: its file.
        kind: the media type that the payload must have.
        keys: those that are trusted.

    Returns:
        the payload, and which of the keys signed it: at least one.

    Raises:
        InputError: the file cannot be read or is no envelope.
        UnsafeFileError: none of the keys signed it, or it states something of another kind.
    """
    found_kind, payload, signatures = _read_envelope(path)
    signed = _encode(found_kind, payload)
    signers = [key_id(key) for key in keys if any(_is_by(key, one, signed) for one in signatures)]
    if not signers:
        raise UnsafeFileError(
            f"{printable(path)} was changed, or is by none of the trusted keys",
            " or ".join(f"a signature by {key_id(key)[:12]}…" for key in keys),
        )
    if found_kind != kind:
        raise UnsafeFileError(f"{printable(path)} signs '{printable(found_kind[:80])}'", kind)
    return payload, signers


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """Reads an Ed25519 private key (PEM without a password).

    Raises:
        InputError: it is another kind of file or key.
        MissingExtraError: `cryptography` is not installed.
    """
    keys, serialization = _import_cryptography()
    key = _load_key(path, lambda text: serialization.load_pem_private_key(text, None))
    if not isinstance(key, keys.Ed25519PrivateKey):
        raise InputError(
            f"{printable(path)} is no private Ed25519 key",
            "a PEM file without a password",
            "make one with: openssl genpkey -algorithm ed25519 -out release.key",
        )
    return key  # type: ignore[no-any-return]


def read_public_key(path: Path) -> "Ed25519PublicKey":
    """Reads an Ed25519 public key (PEM).

    Raises:
        InputError: it is another kind of file or key.
        MissingExtraError: `cryptography` is not installed.
    """
    keys, serialization = _import_cryptography()
    key = _load_key(path, serialization.load_pem_public_key)
    if not isinstance(key, keys.Ed25519PublicKey):
        raise InputError(
            f"{printable(path)} is no public Ed25519 key",
            "a PEM file",
            "take it from the private one with: openssl pkey -in release.key -pubout -out FILE",
        )
    return key  # type: ignore[no-any-return]


def key_id(key: "Ed25519PublicKey") -> str:
    """Returns the SHA-256 of a public key's 32 bytes, by which it is named and revoked."""
    return sha256_bytes(key.public_bytes_raw())


def _encode(kind: str, payload: bytes) -> bytes:
    """The pre-authentication encoding of DSSE: lengths, so that nothing can be read in two ways."""
    name = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)


def _is_by(key: "Ed25519PublicKey", signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _read_envelope(path: Path) -> tuple[str, bytes, list[bytes]]:
    """Returns the media type, the payload and the signatures."""
    shown = printable(path)
    if require_file(path, _EXPECTED).stat().st_size > _MAX_BYTES:
        raise InputError(f"{shown} is larger than 1 MiB", _EXPECTED)
    try:
        envelope = json.loads(path.read_bytes())
        kind, payload = str(envelope["payloadType"]), _decode(envelope["payload"])
        return kind, payload, [_decode(one["sig"]) for one in envelope["signatures"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InputError(f"{shown} is no envelope: {type(error).__name__}", _EXPECTED) from error


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _load_key(path: Path, load: Callable[[bytes], Any]) -> Any:
    """Returns a key of whatever kind, None where the file holds none of that sort."""
    from cryptography.exceptions import UnsupportedAlgorithm

    if require_file(path, "a key (PEM)").stat().st_size > _MAX_BYTES:
        return None
    try:
        return load(path.read_bytes())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _import_cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtraError("cryptography", "signing") from error
    return ed25519, serialization
