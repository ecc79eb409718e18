"""A Prometheus endpoint for a watched pipeline; needs the extra `watch`."""

from typing import Any

from artifacts.errors import InputError, MissingExtraError, UnavailableError
from latency_budget.watch.sample import Sample
from latency_budget.watch.sources import Source
from latency_budget.watch.watcher import Figures

MOST_STAGES = 64
"""Stages beyond these are not counted: their names come from the stream, and each costs memory."""
_SHARES = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.2, 1.5, 2.0, 4.0)
"""Histogram buckets as shares of the deadline, so that one of them ends exactly at it."""


class PrometheusEndpoint:
    """Serves the metrics of one pipeline on http://ADDRESS:PORT/metrics.

    Args:
        deadline_ms: of the frame, for the buckets.
        port: 0 lets the system choose.
        address: of the interface; 127.0.0.1 is this machine only.

    Raises:
        MissingExtraError: prometheus-client is not installed.
        UnavailableError: the port is taken.
    """

    def __init__(self, deadline_ms: float, port: int, address: str = "127.0.0.1") -> None:
        try:
            import prometheus_client as client
        except ImportError as error:
            raise MissingExtraError("prometheus_client", "watch", "--prometheus") from error
        if not 0 <= port <= 65_535:
            raise InputError(f"port is {port}", "0 to 65535")
        self._registry = client.CollectorRegistry()
        buckets = [share * deadline_ms / 1e3 for share in _SHARES]
        name = "framefit_frame"
        self._frames = client.Counter(f"{name}s", "Frames", registry=self._registry)
        self._misses = client.Counter(
            f"{name}s_missed", "Frames over the deadline or dropped", registry=self._registry
        )
        self._dropped = client.Counter(
            f"{name}s_dropped", "Frames never processed", registry=self._registry
        )
        self._latency = client.Histogram(
            f"{name}_latency_seconds",
            "From a frame's arrival to its result; processed frames only",
            buckets=buckets,
            registry=self._registry,
        )
        self._stage = client.Histogram(
            "framefit_stage_seconds", "Per stage", ["stage"], buckets=buckets,
            registry=self._registry,
        )  # fmt: skip
        self._gauges = {
            key: client.Gauge(f"framefit_{key}", text, registry=self._registry)
            for key, text in (
                ("p50_seconds", "Median of the last frames, nearest rank"),
                ("p99_seconds", "P99 of the last frames, nearest rank"),
                ("p99_upper_seconds", "Upper 95 % bound of P99 of the last frames"),
                ("longest_miss_run", "Most consecutive misses so far"),
                ("deadline_seconds", "The frame's deadline"),
                (
                    "frames_lost",
                    "Overwritten unread in a ring, or left out by the numbers of lines",
                ),
                (
                    "frames_unreadable",
                    "Lines that were no frame, records of a ring with impossible times",
                ),
                (
                    "frame_numbers_backward",
                    "Lines whose number is not above that of the line before",
                ),
            )
        }
        self._known: set[str] = set()
        self._gauges["deadline_seconds"].set(deadline_ms / 1e3)
        for key in ("p50_seconds", "p99_seconds", "p99_upper_seconds"):
            self._gauges[key].set(float("nan"))
        try:
            self._server, self._thread = client.start_http_server(
                port, addr=address, registry=self._registry
            )
        except OSError as error:
            raise UnavailableError(
                f"port {port} of {address} cannot be opened: {error.strerror or error}",
                "a free port",
            ) from error
        self.port = int(self._server.server_port)

    def add(self, sample: Sample, *, is_miss: bool) -> None:
        """Counts one frame."""
        self._frames.inc()
        if is_miss:
            self._misses.inc()
        if sample.latency_ns is None:
            self._dropped.inc()
            return
        self._latency.observe(sample.latency_ns / 1e9)
        for stage, duration_ns in sample.stages_ns.items():
            if len(self._known) < MOST_STAGES:
                self._known.add(stage)
            if stage in self._known:
                self._stage.labels(stage).observe(duration_ns / 1e9)

    def show(self, figures: Figures, source: Source) -> None:
        """Sets the gauges."""
        values: dict[str, Any] = {
            "p50_seconds": figures.p50_ms,
            "p99_seconds": figures.p99_ms,
            "p99_upper_seconds": figures.p99_upper_ms,
        }
        for key, value in values.items():
            self._gauges[key].set(float("nan") if value is None else value / 1e3)
        self._gauges["longest_miss_run"].set(figures.longest_run)
        self._gauges["frames_lost"].set(source.lost)
        self._gauges["frames_unreadable"].set(source.unreadable)
        self._gauges["frame_numbers_backward"].set(source.backward)

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
