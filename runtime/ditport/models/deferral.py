"""Modules that a plain generation never calls, left unimported until something calls them.

Half of the time of `from diffusers import WanPipeline` goes into torch's compiler, tensor
parallelism and LoRA training code: diffusers and transformers take one name from each, to mark a
class or to ask `isinstance`. For those names stand-ins are enough, which load the real module the
moment one is called, or anything else is asked of its module. Nothing is assigned in a library
beyond what importing a submodule assigns; `defer()` is for a process that generates on one device
without compiling, and nothing uses it otherwise.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

SHAPES: Final = "torch.fx.experimental.symbolic_shapes"


def mark(thing: Any = None, *_: Any, **__: Any) -> Any:
    """Stands for the compiler's markers (`allow_in_graph`, `disable`): nothing is compiled."""
    return (lambda decorated: decorated) if thing is None else thing


def question(name: str, answer: Callable[[Sequence[bool]], bool]) -> Callable[..., Any]:
    """Stands for a question about shapes; asked about plain truths it needs no compiler."""

    def ask(*values: Any, **options: Any) -> Any:
        if all(type(value) is bool for value in values):
            return answer(values)
        return getattr(load(SHAPES), name)(*values, **options)

    return ask


def first(values: Sequence[bool]) -> bool:
    """What a guard says of a plain truth: the same."""
    return values[0]


def is_nested_int(number: Any) -> Any:
    """Stands for the question of that name, whose answer for plain numbers is no."""
    return type(number) is not int and load(SHAPES).is_nested_int(number)


def sym_eq(left: Any, right: Any) -> Any:
    """Stands for the comparison of two shapes; shapes of plain numbers compare as they are."""
    sequences = isinstance(left, (tuple, list)) and isinstance(right, (tuple, list))
    if sequences and all(type(number) is int for number in (*left, *right)):
        return tuple(left) == tuple(right)
    return load(SHAPES).sym_eq(left, right)


GUARDS: Final = ("expect_true", "guard_or_false", "guard_or_true", "guard_size_oblivious")
MARKERS: Final = ("allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph")
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(MARKERS, mark),
    **{name: question(name, first) for name in GUARDS},
    "sym_and": question("sym_and", all),
    "sym_or": question("sym_or", any),
    "is_nested_int": is_nested_int,
    "sym_eq": sym_eq,
}
PLACEMENTS: Final = ("Partial", "Placement", "Replicate", "Shard", "_StridedShard")

# module -> the names that have stand-ins. A package is followed by its submodules.
DEFERRED: Final[Mapping[str, Sequence[str]]] = {
    "torch._dynamo": MARKERS,
    "torch._dynamo.eval_frame": ("OptimizedModule",),
    "torch._dynamo._trace_wrapped_higher_order_op": ("TransformGetItemToIndex",),
    SHAPES: ("*",),  # torch's Python kernels take many names, and call few with plain numbers
    "sympy": ("Basic",),
    "torch.distributed.tensor": ("DTensor", "DeviceMesh", "distribute_tensor", *PLACEMENTS),
    "torch.distributed.tensor._utils": ("compute_local_shape_and_global_offset",),
    "torch.distributed.tensor.placement_types": PLACEMENTS,
    "torch.distributed.checkpoint": (),
    "torch.distributed.checkpoint.hf_storage": (
        "HuggingFaceStorageReader",
        "HuggingFaceStorageWriter",
    ),
    "torch.distributed.fsdp": (
        "CPUOffloadPolicy",
        "FullyShardedDataParallel",
        "MixedPrecisionPolicy",
        "fully_shard",
    ),
    "torch.distributed._composable": (),
    "torch.distributed._composable.fsdp": ("fully_shard",),
    "peft": ("PeftModel",),
    "peft.helpers": ("disable_input_dtype_casting",),
    "peft.tuners": (),
    "peft.tuners.tuners_utils": ("BaseTunerLayer",),
}


# A real module of one package drops the stand-ins of all of its family.
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("torch.", "sympy"),
    "sympy": ("torch.", "sympy"),
    "peft": ("peft",),
}


class StandIn(type):
    """The class of stand-ins: classes, since they are used in annotations and `isinstance`."""

    module: str
    name: str

    def __instancecheck__(cls, instance: object) -> bool:
        # Nothing is an instance of a class whose module was never loaded.
        real = cls._if_loaded()
        return real is not None and isinstance(instance, real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        real = cls._if_loaded()
        return real is not None and issubclass(subclass, real)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.name in PLACEMENTS:
            # Default values in transformers' tables of parallel layouts; never looked at.
            return type.__call__(object)
        return getattr(load(cls.module), cls.name)(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(load(cls.module), cls.name), name)

    def _if_loaded(cls) -> Any:
        module = sys.modules.get(cls.module)
        return None if module is None or isinstance(module, Deferred) else getattr(module, cls.name)


class Deferred(ModuleType):
    """A module that is not there yet."""

    def __init__(self, name: str, spec: ModuleSpec) -> None:
        super().__init__(name)
        self.__spec__ = spec
        if spec.submodule_search_locations is not None:
            self.__path__ = list(spec.submodule_search_locations)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        real = sys.modules.get(self.__name__)
        if real is not None and not isinstance(real, Deferred):
            return getattr(real, name)  # someone kept this one
        child = f"{self.__name__}.{name}"
        if isinstance(sys.modules.get(child), Deferred):
            return sys.modules[child]
        known = DEFERRED[self.__name__]
        if name not in known and "*" not in known:
            return getattr(load(self.__name__), name)
        return FUNCTIONS.get(name) or stand_in(self.__name__, name)


class Existing(Loader):
    """Gives a module that was imported while its parent was being replaced."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        pass


class Submodules(MetaPathFinder):
    """Replaces a deferred package when another submodule of it than the known ones is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        if not isinstance(sys.modules.get(parent), Deferred):
            return None
        load(parent)
        # The package may have imported it. importlib would then load it a second time, unless
        # it is not in sys.modules until its own spec puts it back.
        module = sys.modules.pop(name, None)
        return None if module is None else ModuleSpec(name, Existing(module))


def stand_in(module: str, name: str) -> StandIn:
    """The stand-in for a name of a deferred module."""
    return StandIn(name, (), {"module": module, "name": name, "__module__": module})


def defer(packages: Sequence[str]) -> None:
    """Put stand-ins for the modules of these packages that are not imported yet."""
    if not packages:
        return
    import torch  # noqa: F401  # the stand-ins hang below it

    if not any(isinstance(finder, Submodules) for finder in sys.meta_path):
        sys.meta_path.insert(0, Submodules())
    for name in DEFERRED:
        parent, _, child = name.rpartition(".")
        wanted = name.startswith(tuple(packages))
        if not wanted or name in sys.modules or (parent and parent not in sys.modules):
            continue
        above = sys.modules.get(parent)
        spec = PathFinder.find_spec(name, above.__path__ if above else None)
        if spec is None:
            continue
        sys.modules[name] = Deferred(name, spec)
        if above is not None and not isinstance(above, Deferred):
            setattr(above, child, sys.modules[name])  # as importing it would


def load(name: str) -> ModuleType:
    """The real module. With it, all stand-ins of its family go: code that is really to run, such
    as the compiler, must meet nothing but the real ones."""
    family = FAMILIES[name.partition(".")[0]]
    for deferred in DEFERRED:
        if deferred.startswith(family) and isinstance(sys.modules.get(deferred), Deferred):
            stub = sys.modules.pop(deferred)
            parent, _, child = deferred.rpartition(".")
            if vars(sys.modules.get(parent, stub)).get(child) is stub:
                delattr(sys.modules[parent], child)
    return importlib.import_module(name)
