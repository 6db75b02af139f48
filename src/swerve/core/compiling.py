"""How Numba compiles kernels: each is translated once, and all are optimised together inside the entry point that calls them.

By default Numba optimises every function with all functions that it calls, and makes machine code of it. A kernel is inlined into
its callers, so that code five calls deep would be optimised five times, and its own machine code would never run.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import create_new_function_pass_manager
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class Unattached:
    """Replaces the code generator of a `Part`. Numba calls `set_env` to write into finished machine code; a `Part` has none."""

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing."""


class Part(JITCodeLibrary):
    """The code of a kernel, for others to link. It is neither optimised nor turned into machine code on its own.

    It overrides private methods of Numba's library class; tests/core/test_compiling.py notices when a new Numba changes them.
    """

    @property
    def codegen(self) -> Any:
        """The code generator."""
        return Unattached()

    def _optimize_functions(self, ll_module: Any) -> None:
        """Set the layout of data, which linked code must agree on; put variables into registers and loops into their usual form.

        Measured without it: the loop over arms in Thompson sampling checks if indexes are negative, a round takes 6 % longer,
        and the loop of Swerve about a quarter longer to compile.
        """
        ll_module.data_layout = self._codegen._data_layout
        if not hasattr(self._codegen, "_pass_builder"):  # Numba 0.61, whose LLVM does not offer these passes
            return
        builder = self._codegen._pass_builder()
        passes = create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_loop_rotate_pass()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def finalize(self) -> None:
        """Link what the kernel calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        return 0


class KernelCompiler(Compiler):
    """Numba's compiler, into a `Part`."""

    def _compile_core(self) -> Any:
        if self.state.library is None:
            self.state.library = Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super()._compile_core()
