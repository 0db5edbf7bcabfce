"""The script that cuts GPUs, run against stand-ins for the driver's tool and systemd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from infra.gpu.user_data import mig_script

NVIDIA_SMI = """#!/bin/bash
echo "nvidia-smi $*" >> "$HERE/calls"
case "$*" in
  *mig.mode.current*) for _ in 0 1; do cat "$HERE/mode"; done ;;
  *query-gpu=index*) [ -e "$HERE/broken" ] && exit 9; printf '0\\n1\\n' ;;
  "-mig 1") [ "$APPLIES" = at-once ] && echo Enabled > "$HERE/mode"; true ;;
  --gpu-reset) [ "$APPLIES" = at-reset ] && echo Enabled > "$HERE/mode" ;;
  *-cgi*) [ "$(grep -c -- "-i $3 -cgi" "$HERE/calls")" -le 7 ] ;;
esac
"""
SYSTEMCTL = """#!/bin/bash
echo "systemctl $*" >> "$HERE/calls"
"""


def cut(here: Path, *, applies: str, mode: str = "Disabled") -> tuple[int, list[str]]:
    """(exit status, what was called), with a driver that applies MIG mode `at-once`, `at-reset` or `at-reboot`."""
    script = re.search(r"<<'SCRIPT'\n(.*?)^SCRIPT$", mig_script("1g.5gb"), re.DOTALL | re.MULTILINE)
    assert script
    (here / "mode").write_text(f"{mode}\n")
    for name, text in {"nvidia-smi": NVIDIA_SMI, "systemctl": SYSTEMCTL, "sleep": "#!/bin/bash\nexit 7\n"}.items():
        (here / name).write_text(text)
        (here / name).chmod(0o755)
    environment = {"PATH": f"{here}:/usr/bin:/bin", "HERE": str(here), "STATE_DIRECTORY": str(here), "APPLIES": applies}
    result = subprocess.run(["bash", "-c", script[1]], env=environment, capture_output=True, check=False, timeout=30)
    return result.returncode, (here / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("applies", "mode"), [("at-once", "Disabled"), ("at-reset", "Disabled"), ("at-reboot", "Enabled")]
)
def test_every_gpu_is_cut_until_nothing_is_left(tmp_path: Path, applies: str, mode: str) -> None:
    status, calls = cut(tmp_path, applies=applies, mode=mode)

    assert status == 0
    for gpu in "01":
        assert calls.count(f"nvidia-smi mig -i {gpu} -cgi 1g.5gb -C") == 8  # seven fit, the eighth is refused
    assert "systemctl reboot" not in calls
    assert ("nvidia-smi -mig 1" in calls) is (mode == "Disabled")


def test_gpus_that_may_not_be_reset_get_one_reboot(tmp_path: Path) -> None:
    status, calls = cut(tmp_path, applies="at-reboot")

    assert (status, calls[-1]) == (7, "systemctl reboot")  # and then it sleeps until the node goes down
    assert not [call for call in calls if "-cgi" in call]

    status, calls = cut(tmp_path, applies="at-reboot")

    assert status == 1
    assert calls.count("systemctl reboot") == 1


def test_broken_driver_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()

    assert cut(tmp_path, applies="at-once")[0] != 0


def test_gpus_are_cut_at_every_boot_before_the_kubelet_starts() -> None:
    script = mig_script("1g.5gb")

    assert "Before=nodeadm-run.service" in script
    assert re.search(r"^After=.*nvidia-kmod-load\.service", script, re.MULTILINE)
    assert "systemctl enable --now paddock-mig.service" in script
