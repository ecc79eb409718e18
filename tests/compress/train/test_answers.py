"""Networks that decide are asked what they decide about."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from compress.train.answers import answer, comparable  # noqa: E402

X = torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)


class Deciding(nn.Module):
    """Scores of a layer, and what is decided about them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how = how
        self.layer = nn.Conv2d(3, 4, 1)
        self.calls = 0

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        scores = self.layer(x)
        return {"depth": -scores, "decided": getattr(self, self.how)(scores)}

    def chosen(self, scores: Tensor) -> Tensor:
        return scores.argmax(1)

    def cast(self, scores: Tensor) -> Tensor:
        return scores.topk(2, 1).indices.to(torch.uint8)[:, 1:]

    def written(self, scores: Tensor) -> Tensor:
        canvas = torch.zeros(1, 4, 4, dtype=torch.uint8)
        canvas[:, 1:] = scores.argmax(1)[:, 1:].to(torch.uint8)
        return canvas

    def numbered(self, scores: Tensor) -> Tensor:
        return scores.argmax(1).float() / 3

    def compared(self, scores: Tensor) -> Tensor:
        return scores[:, 0] > scores[:, 1:].amax(1)

    def masked(self, scores: Tensor) -> Tensor:
        return torch.where(scores > 0, scores, torch.zeros_like(scores))

    def constant(self, scores: Tensor) -> Tensor:
        return torch.ones(scores.shape[0], dtype=torch.int64)


@pytest.mark.parametrize("how", ["chosen", "cast", "written", "numbered"])
def test_what_integers_come_from_stands_beside_them(how: str) -> None:
    module = Deciding(how).eval()
    operator = "topk" if how == "cast" else "argmax"
    found = answer(module, (X,))
    assert list(found) == ["depth", "decided", f"decided before {operator}"]
    torch.testing.assert_close(found[f"decided before {operator}"], -found["depth"])
    assert list(comparable(found)) == ["depth", f"decided before {operator}"]
    assert found[f"decided before {operator}"].requires_grad
    assert module.calls == 1


def test_both_sides_of_a_comparison_are_decided_about() -> None:
    found = answer(Deciding("compared").eval(), (X,))
    assert list(found) == ["depth", "decided", "decided before gt", "decided before gt 1"]
    wanted = found["decided before gt"] > found["decided before gt 1"]
    assert torch.equal(found["decided"], wanted)


@pytest.mark.parametrize("how", ["masked", "constant"])
def test_others_are_outputs_as_they_are(how: str) -> None:
    module = Deciding(how).eval()
    for _ in range(2):
        assert list(answer(module, (X,))) == ["depth", "decided"]


def test_a_network_of_decisions_alone_is_compared_by_what_it_decides_about() -> None:
    class Alone(Deciding):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)["decided"]

    assert list(comparable(answer(Alone("chosen"), (X,)))) == ["output before argmax"]
    assert list(comparable(answer(Alone("constant"), (X,)))) == ["output"]
