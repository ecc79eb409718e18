from benchmarks.package_networks import PACKAGE_NETWORKS
from benchmarks.peers.page import ON_ONNXRUNTIME, OURS_TO_TUNE, PACKAGES, sections

ROW = {"seconds": 2.0, "import_s": 1.0, "cpu_s": 4.0, "peak_mib": 100.0}
OUTPUTS = {"y": {"sqnr_db": 20.0, "sqnr_mean_db": 21.0}}
FIGURES = {
    "date": "2026-11-21",
    "machine": "2 cores",
    "versions": {"framefit": "0"},
    "cases": {
        "net": {
            "split": "all pictures calibrate",
            "others": 0.02,
            "float_ms": 3.0,
            "judged_by": "min_ms",
            "files": {
                "good": ROW
                | {"said": OUTPUTS, "run": OUTPUTS, "min_ms": 1.5, "cpu_ms": 2.5, "p50_ms": [1.6]},
                "bad": {"failure": "no | way"},
            },
            "standing": {
                name: {
                    "beaten_by": winner,
                    "closest": "ours",
                    "gain_db": 2.0,
                    "worst_output_db": 1.0,
                    "time_ratio": 1.0,
                    "cpu_ratio": 1.0,
                }
                for name, winner in (("good", None), ("worse", "ours"))
            },
        }
    },
    "cost": {"what": "a network", "files": {"NNCF": ROW, "framefit": ROW | {"seconds": 3.0}}},
}


def test_the_page_says_what_stands_and_what_failed() -> None:
    page = "\n".join(sections(FIGURES)[OURS_TO_TUNE])
    assert "1 are left standing" in page
    assert "* good: **stands**" in page
    assert "* worse: beaten by *ours*" in page
    assert "failed: no / way" in page
    assert "1.50 (2.00x)" in page


def test_the_page_of_another_runtime_names_it() -> None:
    found = sections(FIGURES | {"runtime": "onnxruntime"})
    assert list(found) == [ON_ONNXRUNTIME]
    page = "\n".join(found[ON_ONNXRUNTIME])
    assert "`python -m benchmarks.peers --runtime onnxruntime`" in page
    assert "they say onnxruntime computes 0 of 1 of the peers' files" in page
    assert "OpenVINO" not in page


def test_the_cost_is_set_against_the_smallest_peer() -> None:
    page = "\n".join(sections(FIGURES)[OURS_TO_TUNE])
    assert "1.33 times the time of the fastest peer" in page
    assert "without imports 1.50)" in page
    assert "1.00 times the smallest peak memory" in page


def test_a_large_network_has_a_table_of_its_own() -> None:
    page = sections(FIGURES | {"cost-large": FIGURES["cost"]})[OURS_TO_TUNE]
    assert [line for line in page if line.startswith("### Cost")] == [
        "### Cost",
        "### Cost of a large network",
    ]


def test_all_rows_of_a_table_have_as_many_cells() -> None:
    lines = sections(FIGURES)[OURS_TO_TUNE]
    start = next(index for index, line in enumerate(lines) if line.startswith("| file"))
    table = [line for line in lines[start : start + 4] if line.startswith("|")]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1


def test_networks_of_packages_have_a_section_of_their_own() -> None:
    case = FIGURES["cases"]["net"]
    found = sections(FIGURES | {"cases": {"net": case, PACKAGE_NETWORKS[0].name: case}})
    assert f"### {PACKAGE_NETWORKS[0].name}" in found[PACKAGES]
    assert f"### {PACKAGE_NETWORKS[0].name}" not in found[OURS_TO_TUNE]
    assert list(sections(FIGURES)) == [OURS_TO_TUNE]
