"""``trtc doctor`` on machines of every kind; GPUs come from a stand-in for NVML."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace

import pytest

from tests.python.cli.running import trtc
from trtc import doctor


class NvmlError(Exception):
    pass


def nvml(**changes):
    """Two H100s, the second without NVLink."""

    def link_state(device, link):
        if device == 1 or link >= 4:
            raise NvmlError("Not Supported")
        return 1

    functions = {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"570.1",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda device: "NVIDIA H100",
        "nvmlDeviceGetMemoryInfo": lambda device: SimpleNamespace(free=60 << 30, total=80 << 30),
        "nvmlDeviceGetCudaComputeCapability": lambda device: (9, 0),
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda device: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda device: 16,
    }
    return SimpleNamespace(**(functions | changes))


def failing(*_):
    raise NvmlError("Driver Not Loaded")


def test_every_gpu_has_a_line_with_its_links():
    first, second = doctor.gpus(nvml())
    assert (first.part, first.verdict) == ("GPU 0", "ready")
    assert first.detail == "NVIDIA H100, SM 90, 60.0 of 80.0 GiB free, driver 570.1, 4 NVLinks, PCIe 5 x16"
    assert second.detail == "NVIDIA H100, SM 90, 60.0 of 80.0 GiB free, driver 570.1, PCIe 5 x16"


def test_no_gpu_is_a_normal_state():
    (without_driver,) = doctor.gpus(nvml(nvmlInit=failing))
    (without_device,) = doctor.gpus(nvml(nvmlDeviceGetCount=lambda: 0))
    (without_package,) = doctor.gpus(None)
    assert {without_driver.verdict, without_device.verdict, without_package.verdict} == {"absent"}
    assert "cpu engines need none" in without_driver.detail


def test_a_driver_that_does_not_answer_is_broken(monkeypatch):
    monkeypatch.setattr(doctor.Path, "exists", lambda path: True)
    (silent,) = doctor.gpus(nvml(nvmlInit=failing))
    (unasked,) = doctor.gpus(None)
    assert silent.verdict == unasked.verdict == "broken"
    assert "Driver Not Loaded" in silent.detail and unasked.missing == "pip install nvidia-ml-py"


def test_an_impossible_instruction_set_is_broken(monkeypatch):
    monkeypatch.setenv("TRTC_CPU_ISA", "avx9000")
    found = doctor.cpu()
    assert found.verdict == "broken" and "avx9000" in found.missing


def test_what_building_lacks_is_named(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("onnx_ir", "gguf") else real(name))
    found = doctor.building()
    assert (found.verdict, found.missing) == ("absent", "pip install onnx-ir gguf")


@pytest.mark.parametrize(("installed", "verdict"), [(None, "absent"), ("1.7.1", "ready")])
def test_a_tensorrt_flavour_is_there_or_says_how_to_get_it(monkeypatch, installed, verdict):
    monkeypatch.setattr(doctor, "_version", lambda package: installed)
    found = doctor.tensorrt("tensorrt-rtx", "needs no GPU to build", "pip install tensorrt-rtx")
    assert found.verdict == verdict
    assert ("pip install tensorrt-rtx" in found.missing) == (installed is None)


def test_the_command_prints_a_line_for_each_part():
    done = trtc("doctor")
    assert done.returncode == 0, done.stderr
    for finding in doctor.examine():
        assert finding.part in done.stdout
    assert "runs cpu engines with" in done.stdout


def test_json_holds_every_finding():
    done = trtc("doctor", "--json")
    parts = [finding["part"] for finding in json.loads(done.stdout)]
    assert parts == [finding.part for finding in doctor.examine()]
