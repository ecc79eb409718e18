import json
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


@pytest.fixture
def keys(folder):
    """release.key and release.pub in the current folder, beside a plan."""
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "release.key").write_bytes(secret)
    (folder / "release.pub").write_bytes(public)
    (folder / "model.plan").write_bytes(b"engine")
    return folder


def test_what_is_signed_verifies_until_it_is_changed(keys, run):
    assert run("sign", "model.plan", "--key", "release.key", "--release", 3).code == 0
    check = ("verify", "model.plan", "--key", "release.pub", "--newest", "state/newest.json")
    accepted = run(*check, "--json", "verified.json")
    assert (accepted.code, accepted.err) == (0, "")
    assert "release 3" in accepted.out
    assert json.loads((keys / "verified.json").read_text())["number"] == 3
    assert run("sign", "model.plan", "--key", "release.key", "--release", 2).code == 0
    older = run(*check)
    assert (older.code, older.out) == (2, "")
    assert "expected 3 or later" in older.err
    (keys / "model.plan").write_bytes(b"another")
    changed = run(*check)
    assert changed.code == 2
    assert len(changed.err.splitlines()) == 1


def test_no_key_trusts_nothing(keys, run):
    assert run("verify", "model.plan").code == 2


def test_without_the_extra_it_is_named(keys, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    lacking = run("verify", "model.plan", "--key", "release.pub")
    assert lacking.code == 4
    assert "error: framefit verify: the Python package 'cryptography'" in lacking.err
    assert "framefit[signing]" in lacking.err
