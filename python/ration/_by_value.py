"""Pickles that another process can read without the program that made them.

A model's class often stands in the script that is run. Pickle stores the class as a name, so a fresh
process would have to run the script again to find it. Here functions and classes of `__main__`, and those
that no module has under their name (lambdas, local classes), are stored by value: their code, what the
code refers to, their attributes. Everything else is stored by name, as pickle does.

The two halves are a shell (an empty function or class) and its state, so that cycles work: a method that
calls super() refers to its class.
"""

import builtins
import enum
import importlib
import marshal
import pickle
import sys
import types


def _is_importable(thing):
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return False
    found = module
    for part in getattr(thing, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is thing


def _names_of(code):
    """Global names that the code, or code inside it, may look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_of(constant)
    return names


def _globals_of(module):
    """Those of a module that stands for the one of that name. It can be imported: torch.compile looks
    globals up by the module that they name."""
    name = "_ration_by_value_" + str(module).replace(".", "_")
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__builtins__ = builtins
    return sys.modules[name].__dict__


def _make_function(code, name, cell_count, module):
    cells = tuple(types.CellType() for _ in range(cell_count)) or None
    return types.FunctionType(marshal.loads(code), _globals_of(module), name, None, cells)


def _fill_function(function, state):
    function.__globals__.update(state.pop("globals"))
    for cell, value in zip(function.__closure__ or (), state.pop("cells")):
        if value:
            cell.cell_contents = value[0]
    for name, value in state.items():
        setattr(function, name, value)


def _reduce_function(function):
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append((cell.cell_contents,))
        except ValueError:  # not set yet
            cells.append(())
    names = _names_of(function.__code__)
    state = {
        "globals": {name: value for name, value in function.__globals__.items() if name in names},
        "cells": cells,
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__qualname__": function.__qualname__,
        "__module__": function.__module__,
        "__annotations__": {},
        "__doc__": function.__doc__,
    }
    state.update(function.__dict__)
    shell = (marshal.dumps(function.__code__), function.__name__, len(cells), function.__module__)
    return _make_function, shell, state, None, None, _fill_function


def _make_class(meta, name, bases, namespace):
    return types.new_class(name, bases, {"metaclass": meta}, lambda body: body.update(namespace))


def _fill_class(made, state):
    for name, value in state.items():
        setattr(made, name, value)


_NOT_STATE = {"__dict__", "__weakref__", "__slots__", "__abstractmethods__", "_abc_impl", "__annotations__",
              "__annotate__", "__annotate_func__", "__annotations_cache__", "__static_attributes__",
              "__firstlineno__"}


def _reduce_class(made):
    slots = made.__dict__.get("__slots__", ())
    slots = {slots} if isinstance(slots, str) else set(slots)
    namespace = {"__module__": made.__module__, "__qualname__": made.__qualname__}
    if "__slots__" in made.__dict__:
        namespace["__slots__"] = tuple(slots)
    state = {name: value for name, value in made.__dict__.items()
             if name not in _NOT_STATE and name not in slots and name not in namespace}
    return (_make_class, (type(made), made.__name__, made.__bases__, namespace), state, None, None,
            _fill_class)


def _property_of(*functions):
    return property(*functions)


def _make_enum(kind, name, members):
    made = kind(name, members)
    made.__module__ = "__main__"
    return made


def _proxy(items):
    return types.MappingProxyType(items)


class Pickler(pickle.Pickler):
    """For torch.save(..., pickle_module=this module), which stores tensors beside the pickle."""

    def reducer_override(self, thing):
        if isinstance(thing, types.ModuleType):
            return importlib.import_module, (thing.__name__,)
        if isinstance(thing, types.MappingProxyType):
            return _proxy, (dict(thing),)
        if isinstance(thing, types.FunctionType) and not _is_importable(thing):
            return _reduce_function(thing)
        if isinstance(thing, type) and not _is_importable(thing) and thing.__module__ != "builtins":
            if issubclass(thing, enum.Enum):
                members = {name: member.value for name, member in thing.__members__.items()}
                return _make_enum, (thing.__bases__[-1], thing.__name__, members)
            return _reduce_class(thing)
        if isinstance(thing, property):
            return _property_of, (thing.fget, thing.fset, thing.fdel, thing.__doc__)
        if isinstance(thing, (staticmethod, classmethod)):
            return type(thing), (thing.__func__,)
        return NotImplemented


Unpickler, load, UnpicklingError = pickle.Unpickler, pickle.load, pickle.UnpicklingError


def dump(thing, file, protocol=4):
    """What cannot be stored raises pickle.PicklingError, TypeError or AttributeError."""
    Pickler(file, protocol=protocol).dump(thing)
