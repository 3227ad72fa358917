"""What a package exports: every name is there, and importing the package loads no torch."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ("models", "policies", "rollout", "scorers")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_that_a_package_exports_is_there(package: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    face = importlib.import_module(f"heedful.{package}")
    assert face.__all__ == sorted(face.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert all(getattr(face, name) is not None for name in face.__all__)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = face.nothing_of_this_name


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_no_torch(package: str) -> None:
    program = f"import sys, heedful.{package}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0
