import subprocess
import sys


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, latency_budget, framefit.commands.budget\n"
        "heavy = {'torch', 'jinja2', 'openvino', 'onnxruntime', 'scipy', 'cv2', 'rich.progress'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
