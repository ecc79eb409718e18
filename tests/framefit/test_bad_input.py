"""Every bad input: one line on stderr, exit code 2, nothing lost, no code run."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

OLD = b"the file of the last good run"


class Canary:
    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return exec, ("open('canary', 'w').close()",)


def missing(network: Path, pictures: Path) -> list[object]:
    network.unlink()
    return [network, "--data", pictures]


def folder_as_model(network: Path, pictures: Path) -> list[object]:
    return [pictures, "--data", pictures]


def text_called_onnx(network: Path, pictures: Path) -> list[object]:
    network.write_text("I am not a network\n" * 10)
    return [network, "--data", pictures]


def truncated(network: Path, pictures: Path) -> list[object]:
    network.write_bytes(network.read_bytes()[:-200])
    return [network, "--data", pictures]


def empty(network: Path, pictures: Path) -> list[object]:
    network.write_bytes(b"")
    return [network, "--data", pictures]


def pickle_called_pt(network: Path, pictures: Path) -> list[object]:
    network.with_suffix(".pt").write_bytes(pickle.dumps(Canary()))
    return [network.with_suffix(".pt"), "--data", pictures]


def pickle_called_onnx(network: Path, pictures: Path) -> list[object]:
    network.write_bytes(pickle.dumps(Canary()))
    return [network, "--data", pictures]


def pickle_in_a_checkpoint(network: Path, pictures: Path) -> list[object]:
    torch = pytest.importorskip("torch")
    torch.save({"format": "framefit/1", "config": Canary()}, network.with_suffix(".pt"))
    return [network.with_suffix(".pt"), "--data", pictures]


def other_checkpoint(network: Path, pictures: Path) -> list[object]:
    torch = pytest.importorskip("torch")
    torch.save({"epoch": 3, "args": {"lr": 0.1}}, network.with_suffix(".pt"))
    return [network.with_suffix(".pt"), "--data", pictures]


def plain_weights_without_factory(network: Path, pictures: Path) -> list[object]:
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.ones(3)}, network.with_suffix(".pt"))
    return [network.with_suffix(".pt"), "--data", pictures]


def unknown_suffix(network: Path, pictures: Path) -> list[object]:
    return [network.rename("net.h5"), "--data", pictures]


def change(network: Path, edit: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(network)
    edit(model)
    network.write_bytes(model.SerializeToString())


def nan_weights(network: Path, pictures: Path) -> list[object]:
    def edit(model: onnx.ModelProto) -> None:
        values = numpy_helper.to_array(model.graph.initializer[0]).copy()
        values[0, 0, 0, 0] = np.nan
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w1"))

    change(network, edit)
    return [network, "--data", pictures]


def dynamic_height(network: Path, pictures: Path) -> list[object]:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
        model.graph.output[0].type.tensor_type.ClearField("shape")

    change(network, edit)
    return [network, "--data", pictures]


def quantized_already(network: Path, pictures: Path) -> list[object]:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "s"))
        model.graph.node[1].op_type = "Identity"
        model.graph.node[1].output[0] = "float"
        nodes = [
            onnx.helper.make_node("QuantizeLinear", ["float", "s"], ["q"]),
            onnx.helper.make_node("DequantizeLinear", ["q", "s"], ["b"]),
        ]
        for offset, node in enumerate(nodes):
            model.graph.node.insert(2 + offset, node)

    change(network, edit)
    return [network, "--data", pictures]


def missing_data(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures / "none"]


def empty_data(network: Path, pictures: Path) -> list[object]:
    shutil.rmtree(pictures)
    pictures.mkdir()
    (pictures / "readme.txt").write_text("no pictures")
    return [network, "--data", pictures]


def corrupt_picture(network: Path, pictures: Path) -> list[object]:
    path = pictures / "2.png"
    path.write_bytes(path.read_bytes()[:60])
    return [network, "--data", pictures]


def npz(network: Path, **arrays: np.ndarray) -> list[object]:
    np.savez("data.npz", **arrays)
    return [network, "--data", "data.npz"]


GOOD = np.zeros((2, 3, 16, 24), np.float32)


def npz_name(network: Path, pictures: Path) -> list[object]:
    return npz(network, img=GOOD, labels=GOOD)


def npz_type(network: Path, pictures: Path) -> list[object]:
    return npz(network, image=GOOD.astype(np.uint8))


def npz_shape(network: Path, pictures: Path) -> list[object]:
    return npz(network, image=GOOD[..., :20])


def npz_nan(network: Path, pictures: Path) -> list[object]:
    return npz(network, image=np.full_like(GOOD, np.nan))


def npz_objects(network: Path, pictures: Path) -> list[object]:
    return npz(network, image=np.array([Canary()], dtype=object))


def output_is_a_folder(network: Path, pictures: Path) -> list[object]:
    Path("there.onnx").mkdir()
    return [network, "--data", pictures, "--out", "there.onnx"]


def output_below_a_file(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--out", network / "x.onnx"]


def output_of_no_onnx(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--out", "net.engine"]


def output_is_the_input(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--out", network]


def json_is_a_folder(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--json", pictures]


def unknown_target(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--target", "abacus"]


def unknown_observer(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--observer", "guess"]


def unused_percentile(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--percentile", "99.9"]


def unknown_rounding(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--rounding", "up"]


def four_bits(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--weights", "int5"]


def unknown_node(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--keep-float", "no_such_node"]


def bad_mean(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--mean", "a,b,c"]


def bad_std(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--std", "1,0,1"]


def bad_shape(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--input-shape", "3,32,32"]


def factory_for_onnx(network: Path, pictures: Path) -> list[object]:
    return [network, "--data", pictures, "--factory", "os:system"]


def unknown_key_in_settings(network: Path, pictures: Path) -> list[object]:
    Path("framefit.toml").write_text('[input]\ncolour = "rgb"\n')
    return [network, "--data", pictures]


CASES: dict[Callable[[Path, Path], list[object]], str] = {
    missing: "No such file",
    folder_as_model: "is a folder",
    text_called_onnx: "is a text file",
    truncated: "truncated or damaged",
    empty: "is empty",
    pickle_called_pt: "could run code",
    pickle_called_onnx: "pickle",
    pickle_in_a_checkpoint: "could run code",
    other_checkpoint: "of another format",
    plain_weights_without_factory: "--factory",
    unknown_suffix: "suffix '.h5'",
    nan_weights: "tensor 'w1'",
    dynamic_height: "--input-shape 1,3,360,24",
    quantized_already: "quantized already",
    missing_data: "does not exist",
    empty_data: "has no picture",
    corrupt_picture: "2.png",
    npz_name: "'image' [samples, 3, 16, 24] float32",
    npz_type: "uint8",
    npz_shape: "[2, 3, 16, 20]",
    npz_nan: "NaN",
    npz_objects: "Python objects",
    output_is_a_folder: "it is a folder",
    output_below_a_file: "cannot write",
    output_of_no_onnx: "ending in .onnx",
    output_is_the_input: "the float model itself",
    json_is_a_folder: "it is a folder",
    unknown_target: "'abacus'",
    unknown_observer: "mse",
    unused_percentile: "--percentile",
    unknown_rounding: "nearest",
    four_bits: "int8",
    unknown_node: "no_such_node",
    bad_mean: "--mean",
    bad_std: "above 0",
    bad_shape: "does not fit",
    factory_for_onnx: "--factory",
    unknown_key_in_settings: "did you mean 'color'",
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_bad_input_is_one_line_and_changes_nothing(
    run, folder: Path, network: Path, pictures: Path, make: Callable[[Path, Path], list[object]]
) -> None:
    outputs = [folder / name for name in ("net.int8.onnx", "data.int8.onnx", "good.onnx")]
    for output in outputs:
        output.write_bytes(OLD)
    arguments = make(network, pictures)
    before = sorted(folder.rglob("*"))
    result = run("compress", "quantize", *arguments)
    lines = [line for line in result.err.splitlines() if not line.startswith("warning: nothing")]
    assert result.code == 2, result.err
    assert result.out == ""
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert CASES[make] in lines[0]
    assert all(output.read_bytes() == OLD for output in outputs)
    assert sorted(folder.rglob("*")) == before
    assert not Path("canary").exists()


def test_folder_that_may_not_be_written(run, network: Path, pictures: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    locked = Path("locked")
    locked.mkdir(mode=0o500)
    result = run("compress", "quantize", network, "--data", pictures, "--out", "locked/a.onnx")
    assert result.code == 2
    assert "cannot write" in result.err


def test_full_disk_keeps_the_old_file(
    run, folder: Path, network: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write fails half-way, as on a full disk."""
    old = folder / "net.int8.onnx"
    old.write_bytes(OLD)
    write = Path.write_bytes

    def fail_half_way(path: Path, content: bytes) -> int:
        write(path, content[: len(content) // 2])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", fail_half_way)
    result = run("compress", "quantize", network, "--data", pictures)
    assert result.code == 2
    assert "No space left" in result.err
    assert old.read_bytes() == OLD
    left = sorted(path.name for path in folder.iterdir() if path.name != ".framefit")
    assert left == ["net.int8.onnx", "net.onnx"]


@pytest.mark.parametrize("kind", ["grey", "16 bit", "alpha", "one pixel", "upper case"])
def test_unusual_pictures_are_taken(run, network: Path, pictures: Path, kind: str) -> None:
    image = cv2.imread(str(pictures / "1.png"))
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    changed = {
        "grey": grey,
        "16 bit": image.astype(np.uint16) * 257,
        "alpha": np.dstack([image, grey]),
        "one pixel": image[:1, :1],
        "upper case": image,
    }[kind]
    assert cv2.imwrite(str(pictures / "1.png"), changed)
    if kind == "upper case":
        (pictures / "1.png").rename(pictures / "1.PNG")
    result = run("compress", "quantize", network, "--data", pictures)
    assert result.code == 0, result.err
    assert "4 samples" in result.out


def test_path_with_spaces_and_emoji(run, network: Path, pictures: Path) -> None:
    strange = network.rename("mein Netz 🚗.onnx")
    data = pictures.rename(pictures.parent / "Bilder ü")
    result = run("compress", "quantize", strange, "--data", data)
    assert result.code == 0, result.err
    assert Path("mein Netz 🚗.int8.onnx").is_file()
    Path("a\x1b[31m\n.onnx").write_text("text")
    result = run("compress", "quantize", "a\x1b[31m\n.onnx", "--data", data)
    assert result.err.count("\n") == 1
    assert "\x1b" not in result.err
