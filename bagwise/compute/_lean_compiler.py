"""A quicker way through numba's compiler for loops that are made of many small parts.

Left to itself, numba optimises each part and turns it into machine code, does the same again inside every
caller of the part, and throws the first away. Three things are different here:

- A part stays what the front end made of it. It is optimised once, inside the loop that Python calls.
- Loops and parts stand under the same flags while their calls are resolved, so that a part which both call is
  compiled once, not once per kind of caller.
- Flags are compared by what was set. numba looks up some fifty defaults at each of thousands of calls.

Passes and pipelines are numba's documented way to extend it; how it finishes a library of code is not. Where
a numba does that in another way, `LOOP` and `PART` are empty, and all loops are compiled as numba does it.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import NativeLowering

__all__ = ["LOOP", "PART"]


class _SetFlags(Flags):
    """Flags that are equal where the same ones were set to the same values."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(frozenset(self._values))  # of the names: not all values have one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SetFlags) and self._values == other._values


class _Loop(CompilerBase):
    """numba's pipeline, with flags that do not tell a calling loop from a calling part."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.state.flags = _SetFlags(self.state.flags)

    def define_pipelines(self) -> list[Any]:
        caller = ConfigStack().top()  # a copy, by which numba finds parts that are compiled already
        caller.no_cpython_wrapper = caller.no_cfunc_wrapper = True
        caller.release_gil = False
        for name, option in caller.options.items():
            if getattr(caller, name) == option.default:
                caller.discard(name)
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


class _Part(_Loop):
    """The same, without machine code at its end."""

    def define_pipelines(self) -> list[Any]:
        (manager,) = super().define_pipelines()
        manager._finalized = False
        manager.passes = [
            (_PartLowering if step is NativeLowering else step, why) for step, why in manager.passes
        ]
        manager.finalize()
        return [manager]


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Lowering of a part: its code is kept for those that call it, and goes no further."""

    _name = "bagwise_part_lowering"

    def run_pass(self, state: Any) -> bool:
        library = state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # Where numba keeps a function with its address, here is one without: callers find the part by it.
        described = lowered.fndesc
        key = _dynfunc.make_function(
            described.lookup_module(), described.qualname, "", 0, lowered.env, (library,)
        )
        state.targetctx.insert_user_function(key, described, [library])
        state["cr"] = lowered._replace(cfunc=key)
        return True


class _PartLibrary(JITCodeLibrary):
    """Code for others to link, neither optimised as a whole nor given to the machine."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


_OVERRIDDEN = ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals")
_KNOWN = all(hasattr(JITCodeLibrary, name) for name in _OVERRIDDEN)
LOOP: dict[str, Any] = {"pipeline_class": _Loop} if _KNOWN else {}
PART: dict[str, Any] = {"pipeline_class": _Part, "no_cpython_wrapper": True} if _KNOWN else {}
