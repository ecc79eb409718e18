"""Follows objects from frame to frame: Kalman filters, gated optimal association, stable ids."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perception.frame.assignment import assign_pairs
from perception.frame.decode import Detections, pairwise_iou
from perception.frame.ground import velocity_sigmas_of
from perception.frame.kalman import ConstantVelocityBank
from perception.frame.measurement import box_variance, measure_boxes, place_variance

Array = NDArray[np.float64]

GATE_CHI2_99_4DOF = 13.28
SLOWEST_WITH_HEADING_MPS = 1.0
SURE_HEADING_SIGMAS = 2.0
ACCELERATION_PER_VELOCITY = np.asarray([0.6, 0.3])
FASTEST_GROWTH = 2.0
EDGE_PX = 2.0
EDGE_VARIANCE_FACTOR = 25.0
# Estimates of consecutive frames share most of their error; filters fed by them are told so.
SHARED_ERROR_FACTOR = 10.0
HIGHEST_YAW_RATE = 0.8


@dataclass(frozen=True, kw_only=True)
class TrackerSettings:
    """How tracks are made, matched and dropped.

    Attributes:
        confirm_hits: detections before a track is reported and gets its id.
        max_tentative_misses: frames without detection after which an unconfirmed track is dropped.
        max_misses: the same for a confirmed one inside the picture; 15 is half a second at 30 Hz.
        max_tracks: most tracks kept; bounds the frame's work.
        label_mismatch_cost: added to a pair's cost (0..1) where the classes differ.
        birth_score: lowest score of a detection that starts a track.
    """

    confirm_hits: int = 3
    max_tentative_misses: int = 1
    max_misses: int = 15
    max_tracks: int = 64
    label_mismatch_cost: float = 0.4
    birth_score: float = 0.35


@dataclass(frozen=True)
class Tracks:
    """The confirmed objects of one frame.

    Attributes:
        ids: [N] int64; given at confirmation, never used again.
        labels: [N] int64 class with the most evidence so far.
        scores: [N] score of the last detection.
        boxes: [N, 4] estimated x1, y1, x2, y2 in input pixels.
        positions: [N, 2] x, z on the ground relative to the camera, m.
        velocities: [N, 2] over the ground (ego motion removed), m/s.
        headings: [N] direction of motion, rad; 0 is forward, positive to the right.
        yaw_rates: [N] rad/s.
        position_sigmas: [N, 2] standard deviations of x and z, m.
        velocity_sigmas: [N] standard deviation of the speed, m/s.
        misses: [N] frames since the last detection.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    scores: Array
    boxes: Array
    positions: Array
    velocities: Array
    headings: Array
    yaw_rates: Array
    position_sigmas: Array
    velocity_sigmas: Array
    misses: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


class Tracker:
    """Follows objects through a sequence of frames.

    Each object has filters for its box (centre, log size) and for its place on the ground.
    Detections are matched at least summed cost of IoU and Mahalanobis distance (Bewley et al.
    2016, SORT; Wojke et al. 2017), within a 99 % gate.

    Args:
        classes: the detections' classes by index.
        input_hw: height and width of the network's input, pixels. Boxes cut at its edges say
            little of size and place, and an object that has left it is dropped.
        settings: how tracks are made, matched and dropped.
    """

    def __init__(
        self,
        classes: Sequence[str],
        input_hw: tuple[int, int],
        settings: TrackerSettings | None = None,
    ) -> None:
        self._settings = settings or TrackerSettings()
        self._limits = np.asarray([input_hw[1], input_hw[0]], np.float64)
        self._box = ConstantVelocityBank(4)
        self._ground = ConstantVelocityBank(2)
        self._heading = ConstantVelocityBank(1)
        self._velocity_sigmas = velocity_sigmas_of(classes or ["unknown"])
        self._evidence: Array = np.zeros((0, len(self._velocity_sigmas)))
        self._ids = np.zeros(0, np.int64)
        self._hits = np.zeros(0, np.int64)
        self._misses = np.zeros(0, np.int64)
        self._scores: Array = np.zeros(0)
        self._next_id = 1

    def update(
        self, detections: Detections, positions: Array, dt_s: float, ego_speed_mps: float = 0.0
    ) -> Tracks:
        """Advances the tracks to this frame and returns the confirmed ones.

        Args:
            detections: what was found in this frame.
            positions: [N, 2] x, z of each detection on the ground, m.
            dt_s: time since the frame before, s.
            ego_speed_mps: the camera's own speed forward.
        """
        count = min(len(detections), self._settings.max_tracks)
        boxes = detections.boxes[:count]
        labels, scores = detections.labels[:count], detections.scores[:count].astype(np.float64)
        measured = measure_boxes(boxes)
        self._predict(dt_s, ego_speed_mps)
        pairs = assign_pairs(self._match_costs(boxes, measured, labels), 1.0)
        self._correct_places(pairs, measured, positions[:count], ego_speed_mps)
        self._correct_headings(pairs[:, 0])
        self._note(pairs, labels, scores)
        is_new = np.ones(count, bool)
        is_new[pairs[:, 1]] = False
        is_new &= scores >= self._settings.birth_score
        self._drop()
        self._start(np.flatnonzero(is_new), measured, positions, labels, scores)
        return self._report()

    def _predict(self, dt_s: float, ego_speed_mps: float) -> None:
        """Advances all filters; at constant closing speed the growth g itself grows at g^2."""
        growth = np.clip(self._box.rate[:, 2:], -FASTEST_GROWTH, FASTEST_GROWTH)
        self._box.rate[:, 2:] += np.square(growth) * dt_s
        width, height = np.exp(self._box.value[:, 2]), np.exp(self._box.value[:, 3])
        jerkiness = np.stack(
            [20 + 1.5 * width, 20 + 1.0 * height, 0 * width + 0.4, 0 * width + 0.4], axis=1
        )
        self._box.predict(dt_s, jerkiness)
        ego_move = np.asarray([0.0, -ego_speed_mps * dt_s])
        likely = self._velocity_sigmas[self._evidence.argmax(axis=1)]
        self._ground.predict(dt_s, ACCELERATION_PER_VELOCITY * likely, ego_move)
        self._heading.predict(dt_s, 0.6)

    def _match_costs(
        self, boxes: NDArray[np.float32], measured: Array, labels: NDArray[np.int64]
    ) -> Array:
        """Returns [tracks, detections] costs, below 1 where a match is possible."""
        if not len(self._ids) or not len(boxes):
            return np.full((len(self._ids), len(boxes)), np.inf)
        innovation = measured[None] - self._box.value[:, None]
        total = self._box.value_variance[:, None] + box_variance(measured)[None]
        distance = np.square(innovation, out=innovation)
        distance /= total
        mahalanobis = distance.sum(axis=2)
        iou = pairwise_iou(self._boxes().astype(np.float32), boxes)
        cost = 0.5 * (1 - iou) + 0.4 * mahalanobis / GATE_CHI2_99_4DOF
        differs = self._evidence.argmax(axis=1)[:, None] != labels[None, :]
        cost += self._settings.label_mismatch_cost * differs
        return np.where(mahalanobis <= GATE_CHI2_99_4DOF, cost, np.inf)

    def _correct_places(
        self, pairs: NDArray[np.int64], measured: Array, positions: Array, ego_speed_mps: float
    ) -> None:
        """Corrects boxes, places, and speeds by how fast boxes grow.

        An object at distance z whose size grows by the part g per second comes nearer at z g.
        That is far finer than differences of distances. Width and height growing differently
        (a turn, a cut at the picture's edge) is doubt.
        """
        rows, found = pairs[:, 0], pairs[:, 1]
        variance = box_variance(measured[found])
        self._box.update(rows, measured[found] - self._box.value[rows], variance)
        where = positions[found]
        trust = np.where(self._is_cut(measured[found]), EDGE_VARIANCE_FACTOR, 1.0)
        variance = place_variance(where) * trust[:, None]
        self._ground.update(rows, where - self._ground.value[rows], variance)
        growth, doubt = self._box.rate[rows, 2:], self._box.rate_variance[rows, 2:].mean(axis=1)
        distance = self._ground.value[rows, 1]
        speed = ego_speed_mps - distance * growth.mean(axis=1)
        unequal = np.square(growth[:, 0] - growth[:, 1])
        speed_variance = SHARED_ERROR_FACTOR * distance**2 * (doubt + unequal) * trust + 0.25
        self._ground.update_rate(rows, 1, speed - self._ground.rate[rows, 1], speed_variance)

    def _correct_headings(self, rows: NDArray[np.int64]) -> None:
        speed = np.hypot(self._ground.rate[rows, 0], self._ground.rate[rows, 1])
        sigma = np.sqrt(self._ground.rate_variance[rows].mean(axis=1))
        moving = rows[speed > np.maximum(SLOWEST_WITH_HEADING_MPS, SURE_HEADING_SIGMAS * sigma)]
        velocity, spread = self._ground.rate[moving], self._ground.rate_variance[moving]
        course = np.arctan2(velocity[:, :1], velocity[:, 1:])
        turn = course - self._heading.value[moving]
        turn = np.arctan2(np.sin(turn), np.cos(turn))
        doubt = spread.mean(axis=1, keepdims=True) / np.square(velocity).sum(axis=1, keepdims=True)
        self._heading.update(moving, turn, SHARED_ERROR_FACTOR * doubt)

    def _note(self, pairs: NDArray[np.int64], labels: NDArray[np.int64], scores: Array) -> None:
        rows, found = pairs[:, 0], pairs[:, 1]
        self._misses += 1
        self._misses[rows] = 0
        self._hits[rows] += 1
        self._scores[rows] = scores[found]
        self._evidence *= 0.95
        self._evidence[rows, labels[found]] += scores[found]
        for row in np.flatnonzero((self._ids == 0) & (self._hits >= self._settings.confirm_hits)):
            self._ids[row] = self._next_id
            self._next_id += 1

    def _drop(self) -> None:
        settings = self._settings
        is_lasting = (self._ids > 0) & ~self._is_cut(self._box.value)
        allowance = np.where(is_lasting, settings.max_misses, settings.max_tentative_misses)
        centre = self._box.value[:, :2]
        is_inside = ((centre > 0) & (centre < self._limits)).all(axis=1)
        is_kept = (self._misses <= allowance) & is_inside & (self._ground.value[:, 1] > 0)
        if is_kept.all():
            return
        for bank in (self._box, self._ground, self._heading):
            bank.keep(is_kept)
        self._evidence, self._ids = self._evidence[is_kept], self._ids[is_kept]
        self._hits, self._misses = self._hits[is_kept], self._misses[is_kept]
        self._scores = self._scores[is_kept]

    def _start(
        self,
        found: NDArray[np.int64],
        measured: Array,
        positions: Array,
        labels: NDArray[np.int64],
        scores: Array,
    ) -> None:
        """Starts a track at each detection of `found`, as far as there is room."""
        found = found[: self._settings.max_tracks - len(self._ids)]
        count = len(found)
        if not count:
            return
        box, where = measured[found], positions[found]
        width, height = np.exp(box[:, 2]), np.exp(box[:, 3])
        doubt = np.stack([30 + width, 30 + height, 0 * width + 0.7, 0 * width + 0.7], axis=1)
        self._box.add(box, box_variance(box), np.square(doubt))
        self._ground.add(
            where, place_variance(where), np.square(self._velocity_sigmas[labels[found]])
        )
        self._heading.add(
            np.zeros((count, 1)), np.full((count, 1), 10.0), np.full((count, 1), 0.02)
        )
        evidence = np.zeros((count, self._evidence.shape[1]))
        evidence[np.arange(count), labels[found]] = scores[found]
        self._evidence = np.concatenate([self._evidence, evidence])
        self._ids = np.concatenate([self._ids, np.zeros(count, np.int64)])
        self._hits = np.concatenate([self._hits, np.ones(count, np.int64)])
        self._misses = np.concatenate([self._misses, np.zeros(count, np.int64)])
        self._scores = np.concatenate([self._scores, scores[found]])

    def _is_cut(self, measured: Array) -> NDArray[np.bool_]:
        """Tells which measured boxes reach an edge of the picture."""
        half = np.exp(measured[:, 2:]) / 2
        low, high = measured[:, :2] - half, measured[:, :2] + half
        return np.asarray(((low < EDGE_PX) | (high > self._limits - EDGE_PX)).any(axis=1))

    def _boxes(self) -> Array:
        centre, half = self._box.value[:, :2], np.exp(self._box.value[:, 2:]) / 2
        return np.concatenate([centre - half, centre + half], axis=1)

    def _report(self) -> Tracks:
        shown = self._ids > 0
        velocity_variance = self._ground.rate_variance[shown]
        return Tracks(
            ids=self._ids[shown],
            labels=self._evidence[shown].argmax(axis=1).astype(np.int64),
            scores=self._scores[shown],
            boxes=self._boxes()[shown],
            positions=self._ground.value[shown],
            velocities=self._ground.rate[shown],
            headings=self._heading.value[shown, 0],
            yaw_rates=np.clip(self._heading.rate[shown, 0], -HIGHEST_YAW_RATE, HIGHEST_YAW_RATE),
            position_sigmas=np.sqrt(self._ground.value_variance[shown]),
            velocity_sigmas=np.sqrt(velocity_variance.mean(axis=1)),
            misses=self._misses[shown],
        )
