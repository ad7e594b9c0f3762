"""PyPI's xgrammar without what its Python side imports and masks do not need: torch (whose tensors carry
masks to graphics cards) and transformers (from whose tokenizers it reads vocabularies). Only names of
theirs are touched when it is imported; the schemas are compiled and the masks made by its own library,
which writes them into numpy's arrays."""

import sys
import types

import tvm_ffi  # noqa: F401  before the names below exist: it would look into torch


class Names(types.ModuleType):
    """A module that has every name: a class that nothing can be done with."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *values, **named: None})


for absent in ("torch", "transformers"):
    sys.modules.setdefault(absent, Names(absent))

import xgrammar  # noqa: E402,F401
