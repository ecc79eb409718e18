"""`framefit sign` and `framefit verify`: who released a file, and whether it may still be run."""

from pathlib import Path
from typing import Annotated

import typer

from framefit.commands.options import JsonOption, NewestOption, RevokedOption


def sign(
    file: Annotated[Path, typer.Argument(help="The file to release: a plan, an .onnx, a report.")],
    key: Annotated[Path, typer.Option(help="Your private Ed25519 key (PEM without a password).")],
    release: Annotated[
        int,
        typer.Option(
            help="The release's number, higher each time: verify --newest refuses a lower one."
        ),
    ],
    days: Annotated[int, typer.Option(help="Days for which the signature holds.")] = 365,
) -> None:
    """Sign a file, and with a plan its manifest: writes FILE.sig beside it.

    Make a key with: openssl genpkey -algorithm ed25519 -out release.key
    and give others: openssl pkey -in release.key -pubout -out release.pub
    """
    from datetime import UTC, datetime, timedelta

    from artifacts.atomic import write_text
    from artifacts.release import sign_release, signature_path
    from artifacts.signature import key_id, read_private_key

    secret = read_private_key(key)
    valid = timedelta(days=max(-1, min(days, 10**6)))
    text = sign_release(file, secret, number=release, valid=valid, now=datetime.now(UTC))
    write_text(signature_path(file), text)
    typer.echo(f"wrote {signature_path(file)}, by the key {key_id(secret.public_key())}")


def verify(
    file: Annotated[Path, typer.Argument(help="The file; FILE.sig lies beside it.")],
    key: Annotated[
        list[Path],
        typer.Option(
            "--key",
            "--trusted-key",
            help="A trusted public Ed25519 key (PEM); may be repeated.",
        ),
    ],
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    json_file: JsonOption = None,
) -> None:
    """Refuse a file that no trusted key signed, that was changed, or whose time is over.

    Exit codes: 0 it may be run, 2 refused, or a file cannot be read.
    """
    from dataclasses import asdict
    from datetime import UTC, datetime

    from artifacts.atomic import write_json
    from framefit.trusted_models import Trust

    found = Trust(keys=key, revoked=revoked, newest=newest).verify(file)
    if json_file is not None:
        write_json(json_file, asdict(found))
    until = datetime.fromtimestamp(found.expires_s, UTC)
    typer.echo(f"accepted: {file} is release {found.number} and holds until {until:%Y-%m-%d}")
