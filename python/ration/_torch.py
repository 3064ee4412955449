"""What is known of PyTorch: which tensors are live and what they are, its own profiler, its devices.

Nothing here counts memory: the totals come from the hooks. This module gives names to blocks that
are counted already.
"""

import gc
import sys
import weakref
from ctypes import c_uint32, c_uint64

from ._library import PURPOSE_NUMBERS, SAME_PURPOSE, device_number, quick

WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS = (
    PURPOSE_NUMBERS[name] for name in ("weights", "gradients", "optimizer", "activations"))


def loaded():
    """torch, if the program has imported it."""
    return sys.modules.get("torch")


def load():
    """torch, imported now if it is installed; else None."""
    try:
        import torch
        return torch
    except ImportError:
        return None


def is_out_of_memory(error):
    """torch's own error, the CPU allocator's RuntimeError, or Python's."""
    if isinstance(error, (MemoryError, getattr(loaded(), "OutOfMemoryError", MemoryError))):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


# ---- labels ---------------------------------------------------------------------------------------


def _label(name, block, tensor):
    """The number of a label: what it is called, the module it belongs to, dtype and shape."""
    try:
        detail = f"{tensor.dtype} {list(tensor.shape)}"
    except Exception:  # noqa: BLE001 (a nested tensor has no one shape)
        detail = str(tensor.dtype)
    if tensor.requires_grad:
        detail += " requires_grad"
    return quick.rn_profile_label(name.encode(), block.encode(), detail.encode())


def _address(tensor):
    """Where its storage lies on the CPU; 0 where there is none (meta, fake, sparse, other devices). A
    subclass may raise what it likes, and the program must not hear of it."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() if storage.device.type == "cpu" else 0
    except Exception:  # noqa: BLE001
        return 0


def _labels(described, seen):
    """(address, purpose, label) of (tensor, purpose, name, block), for each address that was not seen
    yet. What cannot be walked through is left out: a module that is not built yet, a dictionary that
    another thread changes meanwhile."""
    try:
        for tensor, purpose, name, block in described:
            address = _address(tensor)
            if address and address not in seen:
                seen.add(address)
                yield address, purpose, _label(name, block, tensor)
    except Exception:  # noqa: BLE001
        return


def _find(torch):
    """One walk over the collector's objects: live modules, optimizers and tensors. There are hundreds
    of thousands of objects, but few types: each type is looked at once."""
    found = {torch.nn.Module: [], torch.optim.Optimizer: [], torch.Tensor: []}
    lists = {}  # type -> one of these lists, or None
    for thing in gc.get_objects():
        kind = type(thing)
        try:
            into = lists[kind]
        except KeyError:
            into = lists[kind] = next((found[wanted] for wanted in found if issubclass(kind, wanted)), None)
        if into is not None:
            into.append(thing)
    return found.values()


def _roots(modules):
    """The outermost ones. One that is being built may have nothing yet."""
    inner = {id(child) for module in modules for child in getattr(module, "_modules", {}).values()}
    return [module for module in modules if id(module) not in inner]


def _of_module(root):
    """(tensor, purpose, name, block) of parameters, buffers and gradients, named from the outermost
    module."""
    for name, module in root.named_modules():
        path = f"{type(root).__name__}.{name}" if name else type(root).__name__
        for kind in (module._parameters, module._buffers):
            for key, tensor in kind.items():
                if tensor is None:
                    continue
                yield tensor, WEIGHTS, f"{path}.{key}", path
                if tensor.is_leaf and tensor.grad is not None:
                    yield tensor.grad, GRADIENTS, f"{path}.{key}.grad", path


def _of_optimizer(torch, optimizer):
    title = type(optimizer).__name__
    for state in optimizer.state.values():
        for key, tensor in state.items():
            if isinstance(tensor, torch.Tensor):
                yield tensor, OPTIMIZER, f"{title}.{key}", title


def _of_tensors(tensors):
    for tensor in tensors:
        yield tensor, ACTIVATIONS if tensor.grad_fn is not None else SAME_PURPOSE, "tensor", ""


def label_live_tensors(torch):
    """Tells the recording what each live storage is. Costs one walk over the collector's objects, so
    it is done at checkpoints that the program asks for, and never for a total."""
    modules, optimizers, tensors = _find(torch)
    sources = [_of_module(module) for module in _roots(modules)]
    sources += [_of_optimizer(torch, optimizer) for optimizer in optimizers]
    sources.append(_of_tensors(tensors))
    seen = set()
    by_purpose = {}
    with torch._C.DisableTorchFunctionSubclass():
        for source in sources:
            for address, purpose, label in _labels(source, seen):
                addresses, names = by_purpose.setdefault(purpose, ([], []))
                addresses.append(address)
                names.append(label)
    for purpose, (addresses, names) in by_purpose.items():
        tell(addresses, names, purpose)


def tell(addresses, names, purpose):
    count = len(addresses)
    quick.rn_hooks_label_all((c_uint64 * count)(*addresses), (c_uint32 * count)(*names), count, purpose)


def adopt_live_tensors(torch):
    """Tells the hooks of tensors that were there before them. Storage that torch did not allocate
    (numpy's, a file's) is left alone: nobody would hear of its release."""
    _modules, _optimizers, tensors = _find(torch)
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            address = _address(tensor)
            if address and tensor.untyped_storage().resizable():
                quick.rn_hooks_adopt(address, tensor.untyped_storage().nbytes(),
                                     PURPOSE_NUMBERS["other"])


class StepLabels:
    """After each optimizer step: which blocks were gradients, and (once) the optimizer's state."""

    def __init__(self, torch):
        from torch.optim.optimizer import register_optimizer_step_post_hook
        self.torch = torch
        self.known = weakref.WeakKeyDictionary()  # optimizer -> {id of a parameter: its gradient's label}
        self.handle = register_optimizer_step_post_hook(self.after_step)

    def remove(self):
        self.handle.remove()

    def after_step(self, optimizer, _args, _kwargs):
        names = self.known.get(optimizer)
        if names is None:
            names = self.known[optimizer] = {}
            found = list(_labels(_of_optimizer(self.torch, optimizer), set()))
            tell([address for address, _, _ in found], [label for _, _, label in found], OPTIMIZER)
        addresses, labels = [], []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None or not parameter.is_cpu or gradient.layout is not self.torch.strided:
                    continue
                label = names.get(id(parameter))
                if label is None:
                    label = names[id(parameter)] = _label("grad", "", gradient)
                addresses.append(gradient.data_ptr())
                labels.append(label)
        tell(addresses, labels, GRADIENTS)


# ---- torch's own profiler -------------------------------------------------------------------------


def profiler(torch):
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU] + ([kinds.CUDA] if torch.cuda.is_available() else [])
    return torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True)


def operations_of(profile):
    """{(name, shapes): [calls, cpu us, cuda us, cpu bytes, cuda bytes]}"""
    found = {}
    for event in profile.key_averages(group_by_input_shape=True):
        shapes = str([list(shape) for shape in event.input_shapes])
        found[event.key, shapes] = [
            event.count, event.cpu_time_total, getattr(event, "device_time_total", 0),
            event.cpu_memory_usage, getattr(event, "device_memory_usage", 0)]
    return found


# ---- devices ----------------------------------------------------------------------------------------


class Devices:
    """What torch holds on devices whose allocations are not events here."""

    def __init__(self, torch):
        self.readers = {}
        if torch is None:
            return
        if torch.cuda.is_available():
            for index in range(torch.cuda.device_count()):
                self.readers[f"cuda:{index}"] = lambda i=index: _cuda_bytes(torch, i)
        mps = getattr(torch.backends, "mps", None)
        if mps is not None and mps.is_available():
            self.readers["mps"] = lambda: (torch.mps.current_allocated_memory(), None)
        self.numbers = {name: device_number(name) for name in self.readers}
        self.peaks = {}

    def read(self):
        """{name: (bytes now, peak)}; the peak is torch's own where it counts one, else the largest
        that was seen."""
        result = {}
        for name, reader in self.readers.items():
            now, peak = reader()
            self.peaks[name] = peak = peak if peak is not None else max(now, self.peaks.get(name, 0))
            result[name] = (now, peak)
        return result

    def record(self):
        """As counters of the recording. Returns the bytes of all."""
        total = 0
        for name, (now, _peak) in self.read().items():
            quick.rn_profile_counter(0, self.numbers[name],
                                     quick.rn_profile_name(b"torch allocated"), now)
            total += now
        return total


def _cuda_bytes(torch, index):
    from . import cuda
    if cuda.is_pool_in_use():
        stats = cuda.memory_stats(index)
        return stats["allocated_bytes"], stats["peak_allocated_bytes"]
    if not torch.cuda.is_initialized():
        return 0, 0
    return torch.cuda.memory_allocated(index), torch.cuda.max_memory_allocated(index)
