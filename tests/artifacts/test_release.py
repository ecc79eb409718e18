import base64
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError, UnsafeFileError
from artifacts.release import (
    KIND,
    read_revoked,
    refuse_older,
    sign_release,
    signature_path,
    verify_release,
)
from artifacts.signature import (
    key_id,
    open_envelope,
    read_private_key,
    read_public_key,
    sign_payload,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
KEY, OTHER = (ed25519.Ed25519PrivateKey.from_private_bytes(bytes([at] * 32)) for at in (1, 2))
PUBLIC, OTHER_PUBLIC = KEY.public_key(), OTHER.public_key()


def release_file(path, *, key=KEY, number=1, days=30, now=NOW):
    text = sign_release(path, key, number=number, valid=timedelta(days=days), now=now)
    signature_path(path).write_text(text)


def verify(path, *, keys=(PUBLIC,), now=NOW, revoked=()):
    return verify_release(path, keys, now=now, revoked=revoked)


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "model.plan"
    path.write_bytes(b"engine bytes")
    path.with_name("model.plan.json").write_text("{}")
    release_file(path)
    return path


def test_a_signed_plan_is_accepted_with_its_manifest(plan):
    release = verify(plan, keys=(OTHER_PUBLIC, PUBLIC))
    assert set(release.files) == {"model.plan", "model.plan.json"}
    assert (release.name, release.number) == ("model.plan", 1)


@pytest.mark.parametrize("name", ["model.plan", "model.plan.json"])
def test_a_changed_file_is_refused(plan, name):
    plan.with_name(name).write_bytes(b"engine byteS")
    with pytest.raises(UnsafeFileError, match=rf"{name} has the digest .* was signed"):
        verify(plan)


def test_a_missing_renamed_or_added_file_is_refused(plan):
    manifest = plan.with_name("model.plan.json")
    other = plan.rename(plan.with_name("other.plan"))
    signature_path(plan).rename(signature_path(other))
    with pytest.raises(UnsafeFileError, match=r"was signed as model\.plan"):
        verify(other)
    plan.write_bytes(b"engine bytes")
    manifest.unlink()
    release_file(plan)
    assert verify(plan)
    manifest.write_text("{}")
    with pytest.raises(UnsafeFileError, match="was not signed"):
        verify(plan)
    release_file(plan)
    manifest.unlink()
    with pytest.raises(InputError, match=r"model\.plan\.json: No such file"):
        verify(plan)


def test_an_unsigned_file_and_another_key_are_refused(plan):
    with pytest.raises(UnsafeFileError, match="none of the trusted keys"):
        verify(plan, keys=(OTHER_PUBLIC,))
    signature_path(plan).unlink()
    with pytest.raises(UnsafeFileError, match="is not signed"):
        verify(plan)


@pytest.mark.parametrize("after", [timedelta(days=30), timedelta(days=3000)])
def test_an_expired_signature_is_refused(plan, after):
    assert verify(plan, now=NOW + timedelta(days=29))
    with pytest.raises(UnsafeFileError, match="expired on 2026-02-01"):
        verify(plan, now=NOW + after)


def test_a_clock_before_the_signing_is_refused(plan):
    assert verify(plan, now=NOW - timedelta(minutes=4))
    with pytest.raises(UnsafeFileError, match="clock says 1970-01-01"):
        verify(plan, now=datetime(1970, 1, 1, tzinfo=UTC))


def test_revoked_keys_and_files_are_refused(plan, tmp_path):
    listed = tmp_path / "revoked.txt"
    listed.write_text(f"# lost\n\n{key_id(PUBLIC).upper()} a laptop\n")
    with pytest.raises(UnsafeFileError, match="revoked key"):
        verify(plan, revoked=read_revoked(listed))
    with pytest.raises(UnsafeFileError, match=r"model\.plan was revoked"):
        verify(plan, revoked={verify(plan).files["model.plan"]})
    assert verify(plan, revoked={key_id(OTHER_PUBLIC)})
    listed.write_text("the old key\n")
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        read_revoked(listed)


def test_a_payload_that_is_written_again_is_refused(plan):
    """The same values in other bytes: what was signed are the bytes."""
    envelope = json.loads(signature_path(plan).read_text())
    values = json.loads(base64.b64decode(envelope["payload"]))
    again = json.dumps(values, sort_keys=True, indent=2).encode()
    envelope["payload"] = base64.b64encode(again).decode()
    signature_path(plan).write_text(json.dumps(envelope))
    with pytest.raises(UnsafeFileError, match="was changed"):
        verify(plan)


def test_a_statement_of_another_kind_is_no_release(plan):
    envelope = json.loads(signature_path(plan).read_text())
    payload = base64.b64decode(envelope["payload"])
    signature_path(plan).write_text(sign_payload(payload, "application/vnd.in-toto+json", KEY))
    with pytest.raises(UnsafeFileError, match=r"signs 'application/vnd\.in-toto\+json'"):
        verify(plan)
    signature_path(plan).write_text(sign_payload(b'{"name": "x"}', KIND, KEY))
    with pytest.raises(UnsafeFileError, match="no release"):
        verify(plan)


@pytest.mark.parametrize("name", ["../model.plan", "/etc/passwd", "", ".."])
def test_names_stay_in_the_folder(plan, name):
    envelope = json.loads(signature_path(plan).read_text())
    values = json.loads(base64.b64decode(envelope["payload"]))
    values["files"][name] = "0" * 64
    signature_path(plan).write_text(sign_payload(json.dumps(values).encode(), KIND, KEY))
    with pytest.raises(UnsafeFileError, match="no release"):
        verify(plan)


@given(at=st.integers(0), bit=st.integers(0, 7))
def test_no_flipped_bit_of_a_signature_is_accepted_silently(tmp_path_factory, at, bit):
    """Each is refused, or states what was stated: of base64's last digit some bits are unused."""
    path = tmp_path_factory.mktemp("signed") / "model.plan"
    path.write_bytes(b"engine bytes")
    release_file(path)
    content = bytearray(signature_path(path).read_bytes())
    content[at % len(content)] ^= 1 << bit
    stated = verify(path)
    signature_path(path).write_bytes(content)
    with suppress(InputError):
        assert verify(path) == stated


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"payloadType": 1}', "\x00", "[" * 100_000])
def test_what_is_no_envelope_is_bad_input(plan, content):
    signature_path(plan).write_text(content)
    with pytest.raises(InputError):
        open_envelope(signature_path(plan), KIND, [PUBLIC])


def test_an_older_release_is_refused(plan, tmp_path):
    record = tmp_path / "state" / "newest.json"
    release_file(plan, number=7)
    newest = verify(plan)
    refuse_older(newest, record)
    refuse_older(newest, record)
    release_file(plan, number=6)
    with pytest.raises(UnsafeFileError, match="is release 6; expected 7 or later"):
        refuse_older(verify(plan), record)
    plan.write_bytes(b"other engine")
    release_file(plan, number=7)
    with pytest.raises(UnsafeFileError, match="other files than the release 7"):
        refuse_older(verify(plan), record)
    release_file(plan, number=8)
    refuse_older(verify(plan), record)
    other = tmp_path / "other.plan"
    other.write_bytes(b"of another network")
    release_file(other, number=0)
    refuse_older(verify(other), record)


def test_a_torn_record_accepts_nothing(plan, tmp_path):
    record = tmp_path / "newest.json"
    record.write_text('{"model.plan": [7')
    with pytest.raises(InputError, match="no record"):
        refuse_older(verify(plan), record)


def test_keys_of_another_kind_are_bad_input(tmp_path):
    path = tmp_path / "key"
    pkcs = PrivateFormat.PKCS8
    private = KEY.private_bytes(Encoding.PEM, pkcs, NoEncryption())
    path.write_bytes(private)
    assert key_id(read_private_key(path).public_key()) == key_id(PUBLIC)
    public = PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, pkcs, NoEncryption()
    )
    locked = KEY.private_bytes(Encoding.PEM, pkcs, BestAvailableEncryption(b"word"))
    for content in (public, curve, locked, b"text", private[:40]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="no private Ed25519 key"):
            read_private_key(path)
    path.write_bytes(private)
    with pytest.raises(InputError, match="no public Ed25519 key"):
        read_public_key(path)


@pytest.mark.parametrize(("number", "days"), [(-1, 30), (1, 0), (1, 40_000)])
def test_numbers_out_of_range_are_bad_input(plan, number, days):
    with pytest.raises(InputError, match="a release from 0"):
        release_file(plan, number=number, days=days)
