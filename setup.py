"""Builds the native kernels; everything else about the distribution is in pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

import lxml
from Cython.Build import cythonize
from setuptools import Extension, setup

# The folders stand beside fmware/ and are installed as parts of it: fmware/labeling is a link to
# labeling/, and so on. Links are made here, not kept in git: archives and some checkouts turn links
# into plain files. A source distribution has the folders inside fmware/ and needs no links.
for folder in ("labeling", "index", "cmatch", "datasets"):
    link = Path(__file__).parent / "fmware" / folder
    if not link.exists():
        link.symlink_to(Path("..") / folder, target_is_directory=True)

KERNELS = [
    "fmware/labeling/_kernel.pyx",
    "fmware/index/_kernel.pyx",
    "fmware/index/_stamp.pyx",
    "fmware/index/_write.pyx",
    "fmware/labeling/_ses.pyx",
    "fmware/labeling/_values.pyx",
    "fmware/cmatch/_kernel.pyx",
    "fmware/filtering/_scanner.pyx",
    "fmware/filtering/_residual.pyx",
    "fmware/filtering/_kernel.pyx",
    "fmware/matching/_kernel.pyx",
    "fmware/matching/_columns.pyx",
    "fmware/matching/_local.pyx",
    "fmware/service/_columns.pyx",
    "fmware/routing/_paths.pyx",
    "fmware/routing/_schema.pyx",
]

# pip compiles every kernel at every turn. The Makefile sets this, lets pip install the rest, and
# then has build_ext compile, in place, the kernels that have changed.
if "FMWARE_KERNELS_LATER" in os.environ:
    KERNELS.clear()

# What a kernel includes in plain C.
EVALUATOR = [f"fmware/filtering/xpath_{part}.h" for part in ("eval", "calls", "regex", "text")]
HEADERS = {
    "fmware/labeling/_kernel.pyx": [
        "fmware/labeling/fast_reader.h",
        "fmware/labeling/fast_reader_body.h",
    ],
    "fmware/filtering/_residual.pyx": EVALUATOR,
    "fmware/filtering/_kernel.pyx": EVALUATOR,
}

# `make sanitize` and `make fuzz` build with flags of their own, into directories of their own.
FLAGS = os.environ.get("FMWARE_KERNEL_FLAGS", "-O3 -g0").split()

# An empty column has no memory: memcpy of no bytes from nowhere must not let the compiler conclude
# that a pointer is never null.
STRICT = ["-fno-strict-aliasing", "-fno-delete-null-pointer-checks"]

# What Cython and the headers of lxml are known to cause.
QUIET = ["-Wno-unreachable-code", "-Wno-unused-function"]


def extension(path: str) -> Extension:
    return Extension(
        path.removesuffix(".pyx").replace("/", "."),
        [path],
        # lxml ships the headers of the libxml2 it carries, so no system package is needed.
        include_dirs=[*lxml.get_include(), "fmware/labeling", "fmware/filtering"],
        # Another lxml, other headers or other flags, another build.
        depends=[lxml.__file__, "setup.py", *HEADERS.get(path, [])],
        extra_compile_args=[*FLAGS, *STRICT, *QUIET],
        extra_link_args=[flag for flag in FLAGS if flag.startswith("-fsanitize=")],
    )


setup(
    ext_modules=cythonize(
        [extension(path) for path in KERNELS],
        language_level=3,
        compiler_directives={
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": False,
        },
    )
)
