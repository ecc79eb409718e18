"""Releases: a file that was signed, for how long it holds, and that none follows an older one.

A digest says that a file is whole; a signature says that the holder of a key released it. What is
signed is a `Release`; it lies beside the file.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.atomic import only_writer, write_json
from artifacts.digest import sha256_file
from artifacts.errors import InputError, UnsafeFileError
from artifacts.file_kind import printable, require_file
from artifacts.plan_manifest import manifest_path
from artifacts.signature import open_envelope, sign_payload

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

KIND = "application/vnd.framefit.release.v1+json"
CLOCK_SKEW = timedelta(minutes=5)
"""How far a clock may be behind that of the machine that signed."""

_SHA256 = re.compile("[0-9a-f]{64}")
_SIGN_AGAIN = "sign it with: framefit sign"
_TAKE_WHOLE = "take all files of a release from where it was signed"
_REVOKED = "a list of SHA-256, or one line with # while nothing is revoked"


@dataclass(frozen=True, kw_only=True)
class Release:
    """What is signed about a file.

    Attributes:
        name: the file's name.
        files: SHA-256 of the file, and of what is read with it (a plan's manifest), by name.
        number: counts up with each release of `name`.
        signed_s: when it was signed, in seconds since 1970.
        expires_s: until when it holds, in seconds since 1970.
    """

    name: str
    files: Mapping[str, str]
    number: int
    signed_s: int
    expires_s: int

    def __post_init__(self) -> None:
        numbers = (self.number, self.signed_s, self.expires_s)
        names = self.files if isinstance(self.files, Mapping) else ()
        is_whole = all(type(number) is int for number in numbers) and self.name in names
        if not is_whole or any(name in ("", "..") or name != Path(name).name for name in names):
            raise InputError("what was signed is no release", "a name, its files and three numbers")


def signature_path(path: Path) -> Path:
    """Returns where the signature of a file lies: `model.plan.sig` beside `model.plan`."""
    return path.with_name(path.name + ".sig")


def sign_release(
    path: Path, key: "Ed25519PrivateKey", *, number: int, valid: timedelta, now: datetime
) -> str:
    """Returns the text of a file's signature; the manifest beside a plan is signed with it.

    Args:
        path: the file.
        key: who releases it.
        number: of the release, from 0.
        valid: for how long it holds.
        now: the time.

    Raises:
        InputError: the file cannot be read, or a number is out of range.
    """
    if number < 0 or not timedelta(0) < valid <= timedelta(days=36_500):
        raise InputError(
            f"release {number} that holds for {valid.days} days",
            "a release from 0, and 1 to 36500 days",
        )
    members = [require_file(path, "the file to sign")]
    if manifest_path(path).exists():
        members.append(require_file(manifest_path(path), "the manifest of a plan"))
    release = Release(
        name=path.name,
        files={member.name: sha256_file(member) for member in members},
        number=number,
        signed_s=int(now.timestamp()),
        expires_s=int((now + valid).timestamp()),
    )
    return sign_payload(json.dumps(asdict(release)).encode(), KIND, key)


def verify_release(
    path: Path,
    keys: Sequence["Ed25519PublicKey"],
    *,
    now: datetime,
    revoked: Collection[str] = (),
) -> Release:
    """Verifies the signature beside a file, and that the file is the one that was signed.

    Args:
        path: the file.
        keys: those that are trusted; one of them must have signed.
        now: the time.
        revoked: identifiers of keys, and digests of files, that hold no longer.

    Returns:
        what was signed. Its digests are those of the files as they were read here: who reads one
        again compares (`read_verified_plan(path, expected_sha256=release.files[path.name])`).

    Raises:
        UnsafeFileError: there is no signature, it is by no trusted key or by a revoked one, it has
            expired, or a file differs.
        InputError: a file cannot be read.
    """
    require_file(path, "the file to verify")
    if not signature_path(path).exists():
        raise UnsafeFileError(f"{printable(path)} is not signed", signature_path(path).name)
    payload, signers = open_envelope(signature_path(path), KIND, keys)
    if set(signers) <= set(revoked):
        raise UnsafeFileError(
            f"{printable(path)} was signed by the revoked key {signers[0]}", fix=_SIGN_AGAIN
        )
    release = _read_release(payload)
    _check_time(path, release, now)
    _check_files(path, release, revoked)
    return release


def refuse_older(release: Release, record: Path) -> None:
    """Refuses a release that is older than one that was accepted before, and notes this one.

    Args:
        release: verified.
        record: JSON with the newest accepted release of each name; made if missing. Whoever can
            write it can step back.

    Raises:
        UnsafeFileError: a newer one was accepted before, or other files of the same number.
        InputError: the record cannot be read or written.
    """
    files = dict(release.files)
    with only_writer(record):
        newest = _read_record(record)
        number, known = newest.get(release.name, (-1, files))
        if release.number < number:
            raise UnsafeFileError(
                f"{printable(release.name)} is release {release.number}",
                f"{number} or later, which was accepted before",
            )
        if release.number == number and known != files:
            raise UnsafeFileError(
                f"{printable(release.name)} has other files than the release {number} that was"
                " accepted before",
                fix="sign it with a higher --release",
            )
        newest[release.name] = (release.number, files)
        write_json(record, newest)


def read_revoked(path: Path) -> frozenset[str]:
    """Reads a list of revoked keys and files: a SHA-256 a line, words behind it for people.

    Raises:
        InputError: the file cannot be read, or a line does not begin with 64 hexadecimal digits.
    """
    try:
        lines = require_file(path, _REVOKED).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {printable(path)}: {error}", _REVOKED) from error
    words = [line.split()[0].lower() for line in lines if line.strip() and line.strip()[0] != "#"]
    for word in words:
        if not _SHA256.fullmatch(word):
            raise InputError(
                f"{printable(path)} has the line '{printable(word[:80])}'",
                "the identifier of a key or the SHA-256 of a file, 64 hexadecimal digits",
            )
    return frozenset(words)


def _read_release(payload: bytes) -> Release:
    try:
        return Release(**json.loads(payload))
    except (ValueError, TypeError, RecursionError) as error:
        raise UnsafeFileError(
            "what was signed is no release", "a signature of this version", _SIGN_AGAIN
        ) from error


def _check_time(path: Path, release: Release, now: datetime) -> None:
    signed, expires = (
        datetime.fromtimestamp(seconds, UTC) for seconds in (release.signed_s, release.expires_s)
    )
    if now >= expires:
        raise UnsafeFileError(
            f"the signature of {printable(path)} expired on {expires:%Y-%m-%d}", fix=_SIGN_AGAIN
        )
    if now + CLOCK_SKEW < signed:
        raise UnsafeFileError(
            f"the signature of {printable(path)} is of {signed:%Y-%m-%d %H:%M} UTC, and this"
            f" machine's clock says {now:%Y-%m-%d %H:%M}",
            fix="set the clock",
        )


def _check_files(path: Path, release: Release, revoked: Collection[str]) -> None:
    """The files are those that were signed, under their names, and none is missing."""
    if release.name != path.name:
        raise UnsafeFileError(
            f"{printable(path)} was signed as {printable(release.name)}", fix=_TAKE_WHOLE
        )
    for name, digest in release.files.items():
        member = require_file(path.with_name(name), "a file that was signed")
        found = sha256_file(member)
        if found != digest:
            raise UnsafeFileError(
                f"{printable(member)} has the digest {found[:12]}…",
                f"{digest[:12]}…, which was signed",
                _TAKE_WHOLE,
            )
        if digest in revoked:
            raise UnsafeFileError(f"{printable(member)} was revoked", fix="take a newer release")
    manifest = manifest_path(path)
    if manifest.exists() and manifest.name not in release.files:
        raise UnsafeFileError(f"{printable(manifest)} was not signed", fix=_TAKE_WHOLE)


def _read_record(path: Path) -> dict[str, tuple[int, dict[str, str]]]:
    """Returns number and files of the newest accepted release of each name."""
    if not path.exists():
        return {}
    try:
        content = json.loads(require_file(path, "a record").read_text(encoding="utf-8"))
        return {str(name): (int(number), dict(files)) for name, (number, files) in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{printable(path)} is no record of accepted releases",
            "the file that an earlier framefit verify wrote",
        ) from error
