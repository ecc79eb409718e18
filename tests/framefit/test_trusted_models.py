"""`--trusted-key`: what no trusted key released is not opened, and what is opened was verified."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from artifacts.digest import sha256_file
from artifacts.errors import InputError, UnsafeFileError
from framefit.trusted_models import Trust, open_trusted

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "run": ("engines", "run", "net.onnx", "--data", "data.npz"),
    "bench": ("engines", "bench", "net.onnx", "--runs", 5),
    "compare": (
        *("engines", "compare", "net.onnx", "net.onnx", "--data", "data.npz"),
        *("--reference-runtime", "onnxruntime"),
    ),
    "profile": ("engines", "profile", "net.onnx", "--runs", 2),
    "roofline": ("engines", "roofline", "net.onnx", "--no-measure", "--target", "orin"),
    "options": ("engines", "options", "float=net.onnx", "--out", "new.toml", "--runs", 5),
    "check": (
        *("budget", "check", "--budget", "budget.toml", "net.onnx", "--frames", 30),
        *("--warmup", 2, "--environment", "report"),
    ),
    "init": ("budget", "init", "new.toml", "net.onnx", "--frames", 30, "--rate-hz", 200),
}


@pytest.fixture
def signed(network, run):
    """A signed `net.onnx`, keys, data and a budget in the current folder."""
    for name in ("release", "other"):
        key = Ed25519PrivateKey.generate()
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        Path(f"{name}.key").write_bytes(secret)
        Path(f"{name}.pub").write_bytes(public)
    np.savez("data.npz", image=np.zeros((2, 3, 16, 24), np.float32))
    budget = (ROOT / "examples" / "budget.toml").read_text()
    Path("budget.toml").write_text(budget.replace("rate_hz = 30", "rate_hz = 80"))
    assert run("sign", "net.onnx", "--key", "release.key", "--release", 3).code == 0
    return network


def break_unsigned():
    Path("net.onnx.sig").unlink()


def break_changed():
    with Path("net.onnx").open("ab") as stream:
        stream.write(b"x")


def break_nothing():
    pass


REFUSED = {
    "unsigned": ("release.pub", break_unsigned, "net.onnx is not signed"),
    "changed": ("release.pub", break_changed, "net.onnx has the digest"),
    "wrong key": ("other.pub", break_nothing, "by none of the trusted keys"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_was_not_released_is_refused_as_verify_refuses_it(signed, run, command, case):
    key, damage, words = REFUSED[case]
    damage()
    refused = run(*COMMANDS[command], "--trusted-key", key)
    verified = run("verify", "net.onnx", "--trusted-key", key)
    assert (refused.code, refused.out) == (verified.code, "") == (2, "")
    assert words in refused.err
    assert refused.err == verified.err
    assert not Path("new.toml").exists()


@pytest.mark.parametrize("command", ["run", "bench", "compare", "profile", "roofline", "init"])
def test_a_released_file_runs(signed, run, command):
    done = run(*COMMANDS[command], "--trusted-key", "other.pub", "--trusted-key", "release.pub")
    assert done.code == 0, done.err
    assert "framefit-trusted" not in done.out + done.err


def test_a_report_names_the_released_file(signed, run):
    done = run(*COMMANDS["check"], "--trusted-key", "release.pub", "--json", "report.json")
    assert done.code in (0, 1, 3, 4), done.err
    text = Path("report.json").read_text()
    assert sha256_file(signed) in text
    assert json.loads(text)["variants"][0]["artifact"] == "net.onnx"
    assert "framefit-trusted" not in text + done.out + done.err


def test_the_older_build_is_verified_too(signed, run):
    shutil.copy("net.onnx", "older.onnx")
    refused = run(*COMMANDS["check"], "--against", "older.onnx", "--trusted-key", "release.pub")
    assert refused.code == 2
    assert "older.onnx is not signed" in refused.err


def test_revoked_keys_expired_signatures_and_rollbacks_are_refused(signed, run):
    command = (*COMMANDS["run"], "--trusted-key", "release.pub")
    assert run(*command, "--newest", "newest.json").code == 0
    assert run("sign", "net.onnx", "--key", "release.key", "--release", 2).code == 0
    older = run(*command, "--newest", "newest.json")
    assert (older.code, "expected 3 or later" in older.err) == (2, True)
    Path("revoked.txt").write_text(sha256_file(signed))
    revoked = run(*command, "--revoked", "revoked.txt")
    assert (revoked.code, revoked.err) == (2, "error: net.onnx was revoked; take a newer release\n")


def test_an_expired_signature_is_refused(signed, run, monkeypatch):
    from datetime import UTC, datetime

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2199, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("framefit.trusted_models.datetime", Later)
    late = run(*COMMANDS["run"], "--trusted-key", "release.pub")
    assert late.code == 2
    assert "expired on" in late.err


def test_a_file_replaced_after_its_verification_is_not_the_one_that_is_opened(signed):
    verified = signed.read_bytes()
    with open_trusted(Trust(keys=(Path("release.pub"),)), signed) as (opened,):
        signed.write_bytes(b"forged")
        assert opened.read_bytes() == verified
        assert opened.parents[1].stat().st_mode & 0o077 == 0
    assert not opened.exists()


def test_messages_name_the_file_as_it_was_given(signed):
    trust = Trust(keys=(Path("release.pub"),))
    with pytest.raises(UnsafeFileError) as caught, open_trusted(trust, signed) as (opened,):
        raise UnsafeFileError(f"{opened} cannot be loaded")
    assert str(caught.value) == caught.value.what == f"{signed} cannot be loaded"


def test_keys_without_a_file_and_lists_without_a_key_are_refused(signed, run):
    with (
        pytest.raises(InputError, match="without a file"),
        open_trusted(Trust(keys=(Path("release.pub"),)), None),
    ):
        pass
    for option in ("--newest", "--revoked"):
        lacking = run(*COMMANDS["run"], option, "list.txt")
        assert lacking.code == 2
        assert f"{option} would do nothing" in lacking.err
    newest_made = run("budget", "check", "--budget", "budget.toml", "--trusted-key", "release.pub")
    assert newest_made.code == 2
    recorded = ("budget", "check", "--budget", "budget.toml", "--samples", "a.csv")
    assert "--trusted-key would do nothing" in run(*recorded, "--trusted-key", "release.pub").err


def test_without_the_extra_it_is_named(signed, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    lacking = run(*COMMANDS["run"], "--trusted-key", "release.pub")
    assert lacking.code == 4
    assert "framefit[signing]" in lacking.err
    assert len(lacking.err.splitlines()) == 1


def test_weights_beside_the_signed_file_are_refused(signed, run):
    model = onnx.load("net.onnx")
    onnx.save(model, "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert run("sign", "net.onnx", "--key", "release.key", "--release", 4).code == 0
    result = run("engines", "bench", "net.onnx", "--runs", 2, "--trusted-key", "release.pub")
    assert result.code == 2
    assert "net.onnx has weights in files beside it, which no signature covers" in result.err
