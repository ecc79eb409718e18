"""What `compress quantize` says of the network that it made."""

import shlex
from collections import Counter
from typing import TYPE_CHECKING

import typer

from artifacts.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compress.quantize.result import CostlyLayers
    from compress.quantize.search.precision import PrecisionChoice
    from compress.quantize.settings import QuantizeSettings
    from framefit.quantize_outcome import QuantizeOutcome
    from framefit.target_check import TargetCheck

_ROUNDED = {
    "blocks": "residual sums round both addends",
    "pyramids": "sums round both addends",
    "gates": "sums round both addends, and what gates multiply is rounded",
}


def show_outcome(outcome: "QuantizeOutcome", *, is_verbose: bool) -> None:
    """Prints what was made; the details only where asked for."""
    from artifacts.output_parts import find_hidden
    from compress.sqnr import format_db
    from framefit.table import print_table

    result = outcome.result
    if is_verbose:
        print_table(
            ("layer", "operator", "SQNR dB"),
            ((item.node, item.op_type, format_db(item.sqnr_db)) for item in result.layers),
        )
        for item in result.declined:
            typer.echo(f"stays in float: {item.node}: {item.reason}")
    if result.layers:
        hidden_db = find_hidden(result.outputs_db, result.parts_db)
        show_errors(result.outputs_db | hidden_db, outcome.check, outcome.own_states)
        show_forms(result.settings)
    if result.costly is not None:
        show_costly(result.costly, result.precision)
    widths = Counter(item.weight_bits for item in result.layers)
    if widths[4] and widths[8]:
        typer.echo(
            f"weights of {count_of(widths[4], 'layer')} in INT4; INT8 in the {widths[8]} where "
            "INT4 costs the most quality for its size"
        )
    if result.precision is not None:
        show_precision(
            result.precision,
            is_float=not result.layers,
            is_chosen=result.settings.allowance is not None,
        )
        show_frontier(result.precision)
    else:
        bench = f"framefit engines bench {shlex.quote(str(outcome.out))}"
        typer.echo(f"latency not measured; on the target: {bench}")
    if outcome.has_free_batch is not None:
        kept = "free, as in the float network" if outcome.has_free_batch else "1 from now on"
        typer.echo(f"the batch is {kept}; all was measured with a batch of 1")
    elif outcome.is_batch_given:
        typer.echo("the batch is fixed, as --input-shape says; without it, it can stay free")
    size = describe_size(outcome.float_bytes, outcome.int8_bytes)
    typer.echo(
        f"{outcome.out}: {count_of(len(result.layers), 'layer')} quantized, "
        f"{len(result.declined)} in float, {count_of(outcome.samples, 'sample')}, {size}"
    )


def describe_size(before_bytes: int, after_bytes: int) -> str:
    """Returns a file's size beside that of the float network, whose folded constants may grow."""
    ratio = before_bytes / after_bytes
    change = f"{ratio:.1f}x smaller" if ratio >= 1 else f"{1 / ratio:.1f}x larger"
    return f"{after_bytes / 1e6:.2f} MB ({change})"


def show_costly(costly: "CostlyLayers", choice: "PrecisionChoice | None") -> None:
    """Prints which layers make most of the noise of an output, and what they bring in float."""
    what = "; ".join(
        f"{share:.0%} of the noise of {output} comes of {layer}"
        for layer, shares in costly.layers.items()
        for output, share in shares.items()
    )
    is_kept = choice is not None and set(costly.layers) <= set(choice.float_nodes)
    if is_kept:
        outputs = dict.fromkeys(name for shares in costly.layers.values() for name in shares)
        gains = ", ".join(
            f"{name} {costly.int8_db[name]:.1f} to {costly.float_db[name]:.1f} dB"
            for name in outputs
        )
        typer.echo(f"{what}, now in float: {gains}")
        return
    options = " ".join(f"--keep-float {shlex.quote(name)}" for name in costly.layers)
    typer.echo(f"{what}; to leave it in float: {options}")


def show_forms(settings: "QuantizeSettings") -> None:
    """Prints in which forms the target computes faster than in the usual ones."""
    if settings.spares_padded:
        typer.echo("what padded Convs read has no zero points, which make the network slower here")
    if settings.takes_zero_points_or_none and settings.symmetric:
        typer.echo("activations have no zero points: int8 where values are negative, else uint8")
    if settings.swish_by_tanh:
        typer.echo("SiLU behind spatial layers is written with tanh: x sigmoid(x) as h tanh(h) + h")
    if settings.integer_attention:
        typer.echo("attention is computed in integers, which makes the network faster here")
    if settings.trunk_sums:
        typer.echo("sums on the trunk are rounded, which makes the network faster here")
    if settings.integer_borders:
        typer.echo("layers at the border to float compute in integers, which is faster here")
    if settings.integer_sums in _ROUNDED:
        typer.echo(f"{_ROUNDED[settings.integer_sums]}, which makes the network faster here")


def show_errors(
    outputs_db: dict[str, float],
    check: "TargetCheck | None",
    own_states: "Mapping[str, Mapping[str, float]]",
) -> None:
    """Prints the SQNR of outputs (and parts), as the file says and as the target computes it.

    A part that was not measured elsewhere has no figure there.

    Args:
        outputs_db: as the file says.
        check: as the target computes it.
        own_states: of sequences in which the network reads its own states, where it has such.
    """
    from compress.sqnr import format_db
    from framefit.table import print_table

    headings = ["output", "SQNR dB on the calibration data"]
    rows = [[name, format_db(value)] for name, value in outputs_db.items()]
    if check is not None:
        headings.append(f"on {check.runtime}, {check.samples} of them")
        there_db = {name: format_db(value) for name, value in check.outputs_db.items()}
        rows = [[*row, there_db.get(row[0], "-")] for row in rows]
    if own_states:
        headings += ["of sequences with its own states", "their last quarter"]
        over_frames = {name: map(format_db, both.values()) for name, both in own_states.items()}
        rows = [[*row, *over_frames.get(row[0], ("-", "-"))] for row in rows]
    print_table(headings, rows)


def show_precision(choice: "PrecisionChoice", *, is_float: bool, is_chosen: bool) -> None:
    """Prints what stays in float, the times, and what became of the contracts.

    Args:
        choice: what was found.
        is_float: all of it stays in float.
        is_chosen: what stays in float was searched for, as the user asked.
    """
    typer.echo(_say_times(choice, is_float=is_float))
    if len(choice.tried) == 1 and not is_float and not is_chosen:
        typer.echo("more quality at about this latency, for a longer search: --prefer balanced")
    for finding in choice.findings:
        typer.echo(f"contract {'kept' if finding.is_kept else 'broken'}: {finding}")


def show_frontier(choice: "PrecisionChoice") -> None:
    """Prints what other latencies would bring, where the search knows of more than one."""
    from framefit.table import print_table

    frontier = choice.frontier
    if len(frontier) < 2:
        return
    print_table(
        ("latency ms", "layers in float", "predicted dB, mean of heads", "of the worst head", ""),
        (
            (
                f"{item.latency_ms:.2f}",
                str(len(item.float_nodes)),
                f"{item.quality_db:.1f}",
                f"{min(item.head_db.values()):.1f}",
                "chosen" if item == choice.chosen else "",
            )
            for item in frontier
        ),
    )
    typer.echo(
        "predicted: the SQNR that heads would have if the layers' errors, each measured alone, "
        "added up; the table above has what the chosen network was measured to have"
    )
    if choice.findings:
        typer.echo("the contracts were asked of the chosen row; the others may break them")
    typer.echo("for another row: --within-ms MS, or --keep-float with the layers that --json lists")


def _say_times(choice: "PrecisionChoice", *, is_float: bool) -> str:
    times = (
        f"float {choice.float_ms:.2f} ms, all INT8 {choice.int8_ms:.2f} ms, "
        f"chosen {choice.chosen.latency_ms:.2f} ms (side by side)"
    )
    if is_float:
        return f"no layer is faster in INT8, the network stays in float: {times}"
    if len(choice.tried) == 1:
        gain = choice.float_ms / choice.int8_ms
        return f"float {choice.float_ms:.2f} ms, INT8 {choice.int8_ms:.2f} ms ({gain:.2f}x)"
    count = len(choice.float_nodes)
    return f"{count} {'layer stays' if count == 1 else 'layers stay'} in float: {times}"
