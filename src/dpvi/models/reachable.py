"""Which arrays and numbers a callable can reach: in closures, globals, arguments, attributes and containers.

Python has no list of them, so this walks from object to object, the way that the code itself would have to go. Code of
known libraries holds no records, so of their functions only what was handed to them is followed, not their globals.
What is found by other ways (``globals()["x"]``, a file that is read inside) is left to the constants of the jaxpr, see
:mod:`dpvi.models.captured`.
"""

from __future__ import annotations

import dis
import functools
import numbers
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_LIBRARIES = frozenset(
    (
        *("blackjax", "chex", "dpvi", "einops", "equinox", "flax", "jax", "jaxlib", "jaxopt", "jaxtyping"),
        *("matplotlib", "numpy", "numpyro", "optax", "orbax", "pandas", "polars", "pyarrow", "pytest"),
        *("scipy", "sklearn", "statsmodels", "tensorflow_probability", "torch", "tqdm"),
    )
)
# what their objects compute for themselves comes from no record
_MACHINERY = ("dpvi.models.", "dpvi.population.", "dpvi.posterior.")
_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_SEQUENCES = (list, tuple, set, frozenset, deque)

Part = tuple[str, Any]  # a name, as the user would write it, and what it stands for


def reachable(name: str, root: Any) -> Iterator[Part]:
    """Names and values of all arrays, sources of records, numbers and sequences of numbers that ``root`` can reach.

    Parameters
    ----------
    name
        What ``root`` is called; names of attributes begin with it. A variable of a function has its own name.
    root
        A callable, or any object.

    Examples
    --------
    >>> scale = np.ones(3)
    >>> [(name, value.shape) for name, value in reachable("model", lambda z: z * scale)]
    []
    >>> [(name, value.shape) for name, value in reachable("model", functools.partial(max, scale))]
    [('model.args[0]', (3,))]
    """
    waiting: list[Part] = [(name, root)]
    seen: dict[int, Any] = {}  # with the objects themselves: a number may be given again to another one
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        if is_source(value) or shape_of(value) is not None:
            yield name, value
            continue
        seen[id(value)] = value
        waiting.extend(reversed(list(_parts(name, value))))


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array, or a column or table of a data frame."""
    if isinstance(value, type) or not hasattr(type(value), "__getitem__"):
        return False
    return isinstance(_attribute(value, "shape"), tuple) or (hasattr(value, "__array__") and hasattr(value, "__len__"))


def is_source(value: Any) -> bool:
    """Whether these are records on disk."""
    return not isinstance(value, type) and hasattr(type(value), "check_unchanged")


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an array, of a number or of a sequence of numbers; ``None`` of anything else.

    Python's own whole numbers are sizes and settings, and have none.

    Examples
    --------
    >>> shape_of(np.zeros((2, 3))), shape_of(0.5), shape_of([1, 2, 3]), shape_of({"a": [0.5, 1.0]}), shape_of(3)
    ((2, 3), (), (3,), (1, 2), None)
    """
    if is_array(value):
        shape = _attribute(value, "shape")
        return tuple(shape) if isinstance(shape, tuple) else (len(value),)
    if isinstance(value, np.generic) or (isinstance(value, numbers.Number) and not isinstance(value, numbers.Integral)):
        return ()
    if not isinstance(value, (Mapping, *_SEQUENCES)) or len(value) == 0:
        return None
    items = list(value.values()) if isinstance(value, Mapping) else list(value)
    if all(isinstance(item, numbers.Number) for item in items):
        return (len(items),)
    if not all(isinstance(item, _SEQUENCES) for item in items):
        return None
    inner = [shape_of(item) for item in items]
    return None if None in inner else (len(items), *(inner[0] or ()))


def _parts(name: str, value: Any) -> Iterator[Part]:
    """What ``value`` holds or reads itself."""
    if isinstance(value, (str, bytes, numbers.Number, ModuleType)) or value is None:
        return
    if isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, type):
        yield from _of_class(value)
        return
    elif isinstance(value, Mapping):
        yield from ((f"{name}[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, _SEQUENCES):
        names = getattr(value, "_fields", None) or range(len(value))
        yield from (
            (f"{name}.{key}" if isinstance(key, str) else f"{name}[{key}]", item)
            for key, item in zip(names, list(value), strict=False)
        )
    elif isinstance(value, functools.partial):
        yield from ((f"{name}.func", value.func), (f"{name}.args", value.args))
        yield from value.keywords.items()
    elif isinstance(value, property):
        yield from ((name, each) for each in (value.fget, value.fset) if each is not None)
    yield from _of_instance(name, value)


def _of_function(function: FunctionType) -> Iterator[Part]:
    code = function.__code__
    given = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    yield from zip(arguments[len(arguments) - len(given) :], given, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a variable that has no value yet
    if is_own(function.__globals__.get("__name__")):
        yield from _named(code, function.__globals__)


def _named(code: CodeType, variables: Mapping[str, Any]) -> Iterator[Part]:
    """The globals that ``code`` reads, and the attributes of modules; in functions inside of it, too."""
    name, value = "", None
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBAL and instruction.argval in variables:
            name, value = instruction.argval, variables[instruction.argval]
        elif instruction.opname in _ATTRIBUTE and isinstance(value, ModuleType):
            name, value = f"{name}.{instruction.argval}", vars(value).get(instruction.argval)
        else:
            value = None
        if isinstance(value, ModuleType) and not is_own(value.__name__):
            value = None
        elif value is not None:
            yield name, value
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, variables)


def _of_class(cls: type) -> Iterator[Part]:
    """Methods and attributes of a class and of those it comes from, as far as they are the user's own."""
    for each in cls.__mro__:
        if is_own(each.__module__):
            yield from ((f"{each.__name__}.{key}", item) for key, item in list(vars(each).items()))


def _of_instance(name: str, value: Any) -> Iterator[Part]:
    for holder in ("__self__", "__func__", "__wrapped__"):  # of methods and of what jit returns
        part = _attribute(value, holder)
        if part is not None:
            yield name, part
    slots = [slot for each in type(value).__mro__ for slot in _slots(each)]
    attributes = {slot: _attribute(value, slot) for slot in slots} | dict(_attribute(value, "__dict__") or {})
    machinery = type(value).__module__.startswith(_MACHINERY)
    if machinery and (constants := _attribute(value, "constants")) is not None:  # a front-end says what it holds
        yield f"{name}.constants", constants
        return
    yield from ((f"{name}.{key}", item) for key, item in attributes.items() if not machinery or shape_of(item) is None)
    yield from _of_class(type(value))


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # attributes may be computed, and objects of others fail as they like
        return None


def is_own(module: Any) -> bool:
    """Whether a module is the user's, and no library's."""
    top = str(module).partition(".")[0]
    return top not in _LIBRARIES and top not in sys.stdlib_module_names
